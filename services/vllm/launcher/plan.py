"""From hardware, checkpoint and settings to the numbers that the engine starts with, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher import profiles
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting, InsufficientResources, UnsupportedHardware
from launcher.hardware import GIB, MIB, Gpu, Hardware, Host
from launcher.installation import Installation
from launcher.settings import Settings

# A block that vLLM keeps for itself and the rounding to whole blocks: 128 tokens a block on CPUs.
_KV_SLACK_TOKENS = 256
# vLLM's default on cards below 70 GiB; the KV cache never needs more than all of them at full length.
_GPU_SEQUENCES = 256
# What is left of the free memory for other processes, even if the model alone wants more than its share.
_HIGHEST_SHARE = 0.92
# vLLM only starts if this share of the plan is free; a tenth is left for what its count and ours differ by.
_DEMANDED_SHARE = 0.9
# Methods that only read what an earlier quantization wrote into the checkpoint.
_CHECKPOINT_QUANTIZATIONS = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors"})


@dataclass(frozen=True)
class Plan:
    """How the engine starts: sizes in bytes, context in tokens; sequences None leaves vLLM's default.

    `memory_utilization` is the share of the card that vLLM demands to be free at the start; None on a CPU.
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


def choose_device(settings: Settings, hardware: Hardware, installation: Installation | None) -> str:
    """Return cuda or cpu. Raises UnsupportedHardware where the installed vLLM cannot use what is there."""
    if installation is None:
        raise UnsupportedHardware("vLLM is not installed for this Python; run `make setup` or use the image")
    cpu_image = "use the CPU image (docker-compose.cpu.yml)"
    if installation.build == "cpu":
        if settings.device == "cuda":
            raise UnsupportedHardware("ENGINE_DEVICE=cuda, but the installed vLLM is the CPU build; use the GPU image")
        _check_cpu(hardware.host)
        return "cpu"
    if settings.device == "cpu":
        raise UnsupportedHardware(f"ENGINE_DEVICE=cpu, but the installed vLLM is the CUDA build; {cpu_image}")
    if not hardware.gpus:
        reason = hardware.gpu_problem or "no NVIDIA GPU is visible"
        raise UnsupportedHardware(f"{reason}; give the container a GPU (NVIDIA Container Toolkit), or {cpu_image}")
    _check_gpu(hardware.gpus[0])
    return "cuda"


def make(settings: Settings, hardware: Hardware, checkpoint: Checkpoint, device: str) -> Plan:
    """Work out the plan. Raises InsufficientResources or BadSetting, naming the setting that would help."""
    _check_quantization(settings, checkpoint, device)
    if hardware.host.shared_memory_bytes < profiles.LOWEST_SHARED_MEMORY_BYTES:
        raise InsufficientResources(
            f"the shared memory (/dev/shm) has {hardware.host.shared_memory_bytes // MIB} MiB and vLLM needs"
            f" {profiles.LOWEST_SHARED_MEMORY_BYTES // MIB}; set shm_size: 256m for the container"
        )
    if device == "cuda":
        return _for_gpu(settings, hardware.gpus[0], checkpoint)
    return _for_cpu(settings, hardware.host, checkpoint)


def _for_gpu(settings: Settings, gpu: Gpu, checkpoint: Checkpoint) -> Plan:
    profile = _check_gpu(gpu)
    dtype = _dtype(settings, profile.dtype)
    if dtype == "bfloat16" and profile.dtype == "float16":
        raise BadSetting("ENGINE_DTYPE", f"{gpu.name} has no bfloat16; leave it at auto, which takes float16")
    token_bytes = checkpoint.kv_bytes_per_token(dtype)
    fixed = checkpoint.weight_bytes + profile.overhead_bytes
    wanted_context = settings.max_model_len or checkpoint.context_tokens
    budget, origin = _gpu_budget(settings, gpu, profile, fixed + _kv_bytes(wanted_context, token_bytes))
    if budget <= fixed:
        raise InsufficientResources(
            f"weights and working memory alone need {_gib(fixed)}, and the budget is {_gib(budget)} ({origin}); raise"
            " ENGINE_VRAM_GB or stop what else uses the card"
        )
    most = _kv_bytes(wanted_context, token_bytes) * (settings.max_sequences or _GPU_SEQUENCES)
    kv_cache = _explicit_kv(settings) or min(budget - fixed, most)
    if fixed + kv_cache > gpu.memory_free_bytes:
        raise InsufficientResources(
            f"weights, working memory and KV cache need {_gib(fixed + kv_cache)}, but {gpu.name} has"
            f" {_gib(gpu.memory_free_bytes)} free; lower ENGINE_KV_CACHE_GB or stop what else uses the card"
        )
    context = _fit_context(settings, wanted_context, kv_cache, token_bytes, "ENGINE_VRAM_GB or ENGINE_KV_CACHE_GB")
    eager = settings.eager == "on"
    capability = ".".join(map(str, gpu.compute_capability))
    return Plan(
        device="cuda",
        dtype=dtype,
        context_tokens=context,
        kv_cache_bytes=kv_cache,
        sequences=settings.max_sequences,
        eager=eager,
        memory_utilization=round(max(0.01, _DEMANDED_SHARE * (fixed + kv_cache) / gpu.memory_total_bytes), 3),
        reasons=(
            f"{gpu.name}, compute capability {capability}, driver {gpu.driver_version}: {profile.reason}",
            f"{_gib(budget)} budget ({origin}): {_parts(checkpoint.weight_bytes, profile.overhead_bytes, kv_cache)}",
            f"KV cache for {kv_cache // token_bytes} tokens",
            _context_reason(settings, checkpoint, context),
            "ENGINE_EAGER=on: no CUDA graphs, several times slower" if eager else "CUDA graphs and compilation on",
        ),
    )


def _for_cpu(settings: Settings, host: Host, checkpoint: Checkpoint) -> Plan:
    profile = profiles.for_cpu(host, checkpoint.weight_bytes)
    dtype = _dtype(settings, profile.dtype)
    token_bytes = checkpoint.kv_bytes_per_token(dtype)
    sequences = settings.max_sequences or profile.sequences
    context = settings.max_model_len or min(profile.context_tokens, checkpoint.context_tokens)
    one_context = _kv_bytes(context, token_bytes)
    kv_cache = _explicit_kv(settings) or min(max(profile.kv_cache_bytes, one_context), one_context * sequences)
    # float32 doubles what a 16-bit file holds.
    weights = checkpoint.weight_bytes * (2 if dtype == "float32" and checkpoint.dtype != "float32" else 1)
    needed = weights + profile.overhead_bytes + kv_cache
    available = host.memory_available_bytes
    if needed > available:
        raise InsufficientResources(
            f"the engine needs {_gib(needed)} of memory ({_parts(weights, profile.overhead_bytes, kv_cache)}), but"
            f" {_gib(available)} is available; free some, raise the container's limit, or lower"
            " ENGINE_KV_CACHE_GB or ENGINE_MAX_MODEL_LEN"
        )
    context = _fit_context(settings, context, kv_cache, token_bytes, "ENGINE_KV_CACHE_GB")
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
            f"{_gib(needed)} of {_gib(available)} available: {_parts(weights, profile.overhead_bytes, kv_cache)}",
            f"KV cache for {kv_cache // token_bytes} tokens",
            _context_reason(settings, checkpoint, context),
            "eager: no compilation" if eager else "ENGINE_EAGER=off: compiles at the start",
        ),
        environment=profile.environment,
    )


def _gpu_budget(settings: Settings, gpu: Gpu, profile: profiles.GpuProfile, needed: int) -> tuple[int, str]:
    """Memory of the card that the engine may take in all, and where the number comes from."""
    free = gpu.memory_free_bytes
    if settings.vram_gb is not None:
        budget = int(settings.vram_gb * GIB)
        if budget > free:
            raise InsufficientResources(
                f"ENGINE_VRAM_GB asks for {_gib(budget)}, but {gpu.name} has {_gib(free)} free; lower it or stop what"
                " else uses the card"
            )
        return budget, "ENGINE_VRAM_GB"
    share = int(profile.memory_share * free)
    if share >= needed:
        return share, f"{profile.memory_share:.0%} of {_gib(free)} free"
    return min(needed, int(_HIGHEST_SHARE * free)), f"one full context, {_gib(free)} free"


def _check_gpu(gpu: Gpu) -> profiles.GpuProfile:
    profile = profiles.for_gpu(gpu)
    if profile is None:
        own, lowest = (".".join(map(str, c)) for c in (gpu.compute_capability, profiles.LOWEST_COMPUTE_CAPABILITY))
        raise UnsupportedHardware(
            f"{gpu.name} has compute capability {own}; vLLM with CUDA 13 needs {lowest} (T4, RTX 20) or newer."
            " Use another card, or the CPU image (docker-compose.cpu.yml)"
        )
    return profile


def _check_cpu(host: Host) -> None:
    if host.machine == "x86_64" and "avx2" not in host.cpu_flags:
        raise UnsupportedHardware("this CPU has no AVX2, which vLLM needs; use a CPU of 2013 or later, or a GPU")


def _check_quantization(settings: Settings, checkpoint: Checkpoint, device: str) -> None:
    method = settings.quantization
    if method in _CHECKPOINT_QUANTIZATIONS and not checkpoint.quantization:
        raise BadSetting(
            "ENGINE_QUANTIZATION",
            f"{method} needs a checkpoint that was quantized so, and this one is {checkpoint.dtype}; use"
            " fp8_per_tensor, which quantizes while loading, or leave it empty",
        )
    if method.startswith("fp8") and device == "cpu":
        raise BadSetting("ENGINE_QUANTIZATION", f"{method} needs an NVIDIA GPU; leave it empty on a CPU")


def _dtype(settings: Settings, of_profile: str) -> str:
    return of_profile if settings.dtype == "auto" else settings.dtype


def _explicit_kv(settings: Settings) -> int:
    return int((settings.kv_cache_gb or 0) * GIB)


def _kv_bytes(context_tokens: int, token_bytes: int) -> int:
    return (context_tokens + _KV_SLACK_TOKENS) * token_bytes


def _fit_context(settings: Settings, wanted: int, kv_cache: int, token_bytes: int, remedy: str) -> int:
    """The wanted context, or what the cache holds if nobody asked for a certain one."""
    holds = kv_cache // token_bytes - _KV_SLACK_TOKENS
    if wanted <= holds:
        return wanted
    if settings.max_model_len is None and holds >= _KV_SLACK_TOKENS:
        return holds
    raise InsufficientResources(
        f"a context of {wanted} tokens needs {_gib(_kv_bytes(wanted, token_bytes))} of KV cache and {_gib(kv_cache)} is"
        f" planned; raise {remedy} or lower ENGINE_MAX_MODEL_LEN"
    )


def _context_reason(settings: Settings, checkpoint: Checkpoint, context: int) -> str:
    if settings.max_model_len:
        return f"context {context} tokens: ENGINE_MAX_MODEL_LEN"
    if context == checkpoint.context_tokens:
        return f"context {context} tokens: the model's own"
    return f"context {context} tokens of the model's {checkpoint.context_tokens}: ENGINE_MAX_MODEL_LEN can raise it"


def _parts(weights: int, overhead: int, kv_cache: int) -> str:
    return f"{_gib(weights)} weights, {_gib(overhead)} working memory, {_gib(kv_cache)} KV cache"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB or size <= 0 else f"{size / MIB:.0f} MiB"
