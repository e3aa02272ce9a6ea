"""From hardware, checkpoint and settings to the numbers that the engines start with, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting, InsufficientResources
from launcher.hardware import MIB, Gpu, Hardware, Host
from launcher.planning import budget as budgets
from launcher.planning import placement, profiles, quantization, support
from launcher.planning.memory import Demand, explicit_kv, fit_context, gib, kv_bytes, parts
from launcher.planning.quantization import Quantized
from launcher.settings import Settings

FrontEnd = Literal["python", "rust"]


@dataclass(frozen=True)
class Plan:
    """How each of the engines starts: sizes in bytes, context in tokens; None leaves vLLM's default.

    `kv_cache_bytes` and `gpu_bytes` (what one engine takes in all) are for each of its cards. `memory_utilization` is
    the share of a card that vLLM demands to be free at the start; both are None on a CPU. `cards` says which an engine
    sees, by its index; empty on a CPU.
    """

    device: str
    dtype: str
    context_tokens: int
    kv_cache_bytes: int
    sequences: int | None
    eager: bool
    memory_utilization: float | None
    reasons: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    engines: int = 1
    front_end: FrontEnd = "python"
    api_servers: int = 1
    tensor_parallel: int = 1
    expert_parallel: bool = False
    expert_balancing: bool = False
    attention_backend: str | None = None
    kv_cache_dtype: str = "auto"
    batched_tokens: int | None = None
    gpu_bytes: int | None = None
    cards: tuple[tuple[str, ...], ...] = ()


def make(settings: Settings, hardware: Hardware, checkpoint: Checkpoint, device: str) -> Plan:
    """Work out the plan. Raises InsufficientResources or BadSetting, naming the setting that would help."""
    if hardware.host.shared_memory_bytes < profiles.LOWEST_SHARED_MEMORY_BYTES:
        raise InsufficientResources(
            f"the shared memory (/dev/shm) has {hardware.host.shared_memory_bytes // MIB} MiB and vLLM needs"
            f" {profiles.LOWEST_SHARED_MEMORY_BYTES // MIB}; set shm_size: 256m for the container"
        )
    _check_context(settings, checkpoint)
    if device == "cuda":
        return _for_gpu(settings, hardware, checkpoint)
    return _for_cpu(settings, hardware.host, checkpoint)


def _for_gpu(settings: Settings, hardware: Hardware, checkpoint: Checkpoint) -> Plan:
    gpu = hardware.gpus[0]
    profile = support.profile(gpu)
    dtype = _dtype(settings, profile.dtype)
    if dtype == "bfloat16" and profile.dtype == "float16":
        raise BadSetting("ENGINE_DTYPE", f"{gpu.name} has no bfloat16; leave it at auto, which takes float16")
    quantized = quantization.choose(settings.quantization, checkpoint, gpu)
    _check_quantized_dtype(dtype, quantized)
    kv_type, backend = _kv_type(settings, gpu, profile)
    demand = Demand(
        weight_bytes=quantized.weight_bytes,
        token_bytes=_token_bytes(checkpoint, dtype, kv_type),
        context_tokens=settings.max_model_len or checkpoint.context_tokens,
        sequences=settings.max_sequences or profile.sequences,
        attention_heads=checkpoint.attention_heads,
        kv_heads=checkpoint.kv_heads,
    )
    placed = placement.place(settings, hardware.gpus, hardware.host, demand)
    if placed.sharing > 1 and settings.max_sequences is None:
        demand = replace(demand, sequences=profile.shared_sequences)
    cards = placed.tensor_parallel
    budget = budgets.divide(settings, profile, placed, demand)
    kv_cache, token_bytes = budget.kv_cache_bytes, demand.token(cards)
    context = fit_context(
        settings, demand.context_tokens, kv_cache, token_bytes, "ENGINE_VRAM_GB or ENGINE_KV_CACHE_GB"
    )
    experts = _experts(checkpoint, quantized, cards)
    used = demand.fixed(cards) + kv_cache
    return Plan(
        device="cuda",
        dtype=dtype,
        context_tokens=context,
        kv_cache_bytes=kv_cache,
        sequences=demand.sequences,
        eager=settings.eager == "on",
        memory_utilization=round(max(0.01, profiles.DEMANDED_SHARE * used / gpu.memory_total_bytes), 3),
        reasons=(
            *_card_reasons(hardware.gpus, profile),
            _attention_reason(settings, profile, backend),
            *placed.reasons,
            *quantized.reasons,
            f"each engine takes {gib(used)} of a card: {demand.parts(cards, kv_cache)}",
            f"{gib(budget.card_bytes)} of a card for all engines on it: {budget.origin}",
            f"KV cache for {kv_cache // token_bytes} tokens in each engine",
            _context_reason(settings, checkpoint, context),
            *experts.reasons,
            *_front_end_reasons(settings, placed.api_servers),
            "ENGINE_EAGER=on: no CUDA graphs, several times slower"
            if settings.eager == "on"
            else "CUDA graphs and compilation on",
        ),
        environment={"VLLM_USE_RUST_FRONTEND": "1"} if settings.front_end == "rust" else {},
        engines=placed.engines,
        front_end="rust" if settings.front_end == "rust" else "python",
        api_servers=placed.api_servers,
        tensor_parallel=cards,
        expert_parallel=experts.spread,
        expert_balancing=experts.balanced,
        attention_backend=backend,
        kv_cache_dtype=kv_type,
        batched_tokens=profile.batched_tokens,
        gpu_bytes=used,
        cards=tuple(placed.selectors(index) for index in range(placed.engines)),
    )


def _for_cpu(settings: Settings, host: Host, checkpoint: Checkpoint) -> Plan:
    _check_cpu_settings(settings, host)
    profile = profiles.for_cpu(host, checkpoint.weight_bytes)
    quantized = quantization.choose(settings.quantization, checkpoint, host)
    dtype = _dtype(settings, "auto" if quantized.name else profile.dtype)
    _check_quantized_dtype(dtype, quantized)
    kv_type = settings.kv_cache_dtype
    token_bytes = _token_bytes(checkpoint, dtype, kv_type)
    sequences = settings.max_sequences or profile.sequences
    context = settings.max_model_len or min(profile.context_tokens, checkpoint.context_tokens)
    one_context = kv_bytes(context, token_bytes)
    kv_cache = explicit_kv(settings) or min(max(profile.kv_cache_bytes, one_context), one_context * sequences)
    # float32 doubles what a 16-bit file holds.
    weights = quantized.weight_bytes * (2 if dtype == "float32" and checkpoint.dtype != "float32" else 1)
    engines = settings.replicas or 1
    needed = engines * (weights + profile.overhead_bytes + kv_cache)
    available = host.memory_available_bytes
    if needed > available:
        raise InsufficientResources(
            f"{f'{engines} engines need' if engines > 1 else 'the engine needs'} {gib(needed)} of memory"
            f" ({parts(weights, profile.overhead_bytes, kv_cache)} each), but {gib(available)} is available; free some,"
            " raise the container's limit, or lower ENGINE_KV_CACHE_GB or ENGINE_MAX_MODEL_LEN"
        )
    context = fit_context(settings, context, kv_cache, token_bytes, "ENGINE_KV_CACHE_GB")
    eager = settings.eager != "off"
    return Plan(
        device="cpu",
        dtype=dtype,
        context_tokens=context,
        kv_cache_bytes=kv_cache,
        sequences=sequences,
        eager=eager,
        memory_utilization=None,
        reasons=(
            f"CPU with {host.cores} cores: {profile.reason}",
            f"{engines} engines share the cores: ENGINE_REPLICAS" if engines > 1 else "1 engine: it uses all cores",
            *quantized.reasons,
            f"{gib(needed)} of {gib(available)} available: {parts(weights, profile.overhead_bytes, kv_cache)} each",
            f"KV cache for {kv_cache // token_bytes} tokens",
            _context_reason(settings, checkpoint, context),
            "eager: no compilation" if eager else "ENGINE_EAGER=off: compiles at the start",
        ),
        environment=profile.environment,
        engines=engines,
        api_servers=settings.api_servers or 1,
        kv_cache_dtype=kv_type,
    )


def _kv_type(settings: Settings, gpu: Gpu, profile: profiles.GpuProfile) -> tuple[str, str | None]:
    """Number type of the KV cache, and the attention backend that can read it."""
    if settings.kv_cache_dtype == "auto":
        return "auto", profile.attention_backend
    for from_capability, backend in profiles.FP8_KV_BACKENDS:
        if gpu.compute_capability >= from_capability:
            return "fp8", backend
    raise BadSetting("ENGINE_KV_CACHE_DTYPE", f"no attention backend reads an fp8 KV cache on {gpu.name}; use auto")


@dataclass(frozen=True)
class _Experts:
    """Whether experts are spread over cards, whether their load is balanced, and why."""

    spread: bool
    balanced: bool
    reasons: tuple[str, ...]


def _experts(checkpoint: Checkpoint, quantized: Quantized, cards: int) -> _Experts:
    if not checkpoint.is_moe:
        return _Experts(spread=False, balanced=False, reasons=())
    number = checkpoint.experts
    if cards == 1:
        return _Experts(
            spread=False,
            balanced=False,
            reasons=("experts: all on one card, so there is nothing to spread or to balance",),
        )
    if number % cards:
        return _Experts(
            spread=False, balanced=False, reasons=(f"experts: {number} cannot be spread evenly over {cards} cards",)
        )
    spread = f"experts: {number // cards} of {number} on each card"
    if not quantized.eplb:
        return _Experts(
            spread=True,
            balanced=False,
            reasons=(spread, f"load balancing off: vLLM cannot move experts in {quantized.name}"),
        )
    return _Experts(
        spread=True,
        balanced=True,
        # Copies of busy experts are left out: one a card costs 0.6 GB for ERNIE-4.5-21B-A3B.
        reasons=(spread, "load balancing on: experts move between the cards; vLLM's log has the balancedness"),
    )


def _card_reasons(gpus: tuple[Gpu, ...], profile: profiles.GpuProfile) -> tuple[str, ...]:
    gpu = gpus[0]
    capability = ".".join(map(str, gpu.compute_capability))
    cuda = f", CUDA {gpu.cuda_version[0]}.{gpu.cuda_version[1]}" if gpu.cuda_version else ""
    kind = f"{len(gpus)} x {gpu.name}" if len(gpus) > 1 else gpu.name
    busy = [f"card {card.selector}: {placement.others(card)}" for card in gpus if card.processes]
    old = support.driver_complaint(gpu)
    return (
        f"{kind}, compute capability {capability}, driver {gpu.driver_version}{cuda}: {profile.name}",
        *((f"warning: {old}",) if old else ()),
        *(("the card has no memory of its own: the host's counts",) if gpu.unified_memory else ()),
        *busy,
        *profile.reasons,
    )


def _check_cpu_settings(settings: Settings, host: Host) -> None:
    if settings.front_end == "rust":
        raise BadSetting("ENGINE_FRONT_END", "vLLM's package for CPUs has no rust front end; use auto")
    if (settings.tensor_parallel or 1) > 1:
        raise BadSetting("ENGINE_TENSOR_PARALLEL", "it is a number of NVIDIA GPUs; leave it empty on a CPU")
    if settings.kv_cache_dtype == "fp8" and not host.cpu_flags & {"avx512f", "amx_tile"}:
        raise BadSetting("ENGINE_KV_CACHE_DTYPE", "fp8 needs a CPU with AVX-512 or AMX; use auto")


def _attention_reason(settings: Settings, profile: profiles.GpuProfile, backend: str | None) -> str:
    if settings.kv_cache_dtype == "auto":
        return profile.attention_reason
    how = f"attention through {backend}, which reads it here" if backend else "attention is vLLM's choice"
    return f"fp8 KV cache (ENGINE_KV_CACHE_DTYPE): {how}"


def _front_end_reasons(settings: Settings, api_servers: int) -> tuple[str, ...]:
    if settings.front_end == "rust":
        return ("rust front end: ENGINE_FRONT_END; it lacks parts of the API (docs/facts.md)",)
    processes = f"{api_servers} processes" if api_servers > 1 else "1 process"
    return (f"python front end, {processes} an engine: the gateway's contract does not hold on the rust one yet",)


def _check_context(settings: Settings, checkpoint: Checkpoint) -> None:
    longest = checkpoint.longest_context_tokens
    is_stretched = any(word.startswith("--hf-overrides") for word in settings.extra_args)
    if longest and not is_stretched and (settings.max_model_len or 0) > longest:
        raise BadSetting("ENGINE_MAX_MODEL_LEN", f"{settings.max_model_len}, but the model goes to {longest}; lower it")


def _dtype(settings: Settings, of_profile: str) -> str:
    return of_profile if settings.dtype == "auto" else settings.dtype


def _check_quantized_dtype(dtype: str, quantized: Quantized) -> None:
    if quantized.name and dtype == "float32":
        raise BadSetting("ENGINE_DTYPE", f"quantized weights ({quantized.name}) compute in 16 bit; leave it at auto")


def _token_bytes(checkpoint: Checkpoint, dtype: str, kv_type: str) -> int:
    return checkpoint.kv_values_per_token if kv_type == "fp8" else checkpoint.kv_bytes_per_token(dtype)


def _context_reason(settings: Settings, checkpoint: Checkpoint, context: int) -> str:
    if settings.max_model_len:
        return f"context {context} tokens: ENGINE_MAX_MODEL_LEN"
    if context == checkpoint.context_tokens:
        return f"context {context} tokens: the model's own"
    return f"context {context} tokens of the model's {checkpoint.context_tokens}: ENGINE_MAX_MODEL_LEN can raise it"
