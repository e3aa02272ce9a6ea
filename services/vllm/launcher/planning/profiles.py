"""What a kind of machine gets, as data; the plan applies it.

Measured numbers are from bench/engine (one H200, vLLM 0.26, random weights of ERNIE-4.5-0.3B's shape) or, for CPUs,
from two cores with vLLM 0.32. What is not measured says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.hardware import GIB, MIB, Gpu, Host

# vLLM 0.33 is built for CUDA 13, which dropped Volta.
LOWEST_COMPUTE_CAPABILITY = (7, 5)
# NVIDIA's table of minor version compatibility: CUDA 13.x needs driver 580 or newer.
LOWEST_CUDA, LOWEST_DRIVER = (13, 0), 580
# The package cuda-compat, which runs a newer CUDA on an older driver, is for data center cards only.
CONSUMER_CARDS = ("GeForce", "TITAN", "Quadro")
# vLLM's shared-memory rings need 160 MiB; Docker's default /dev/shm has 64.
LOWEST_SHARED_MEMORY_BYTES = 160 * MIB

# Above this a model fills a card by itself; below it the host is the limit, and several engines share a card.
SMALL_MODEL_BYTES = 2 * GIB
# What is left of the free memory for other processes, even if the model alone wants more than its share.
HIGHEST_SHARE = 0.92
# vLLM only starts if this share of the plan is free; a tenth is left for what its count and ours differ by.
DEMANDED_SHARE = 0.9
# An engine starts when the one before is healthy, 50 s each on an H200: more than eight would take too long unasked.
MOST_ENGINES = 8
# Cards that work on one model together; vLLM wants a divisor of its attention heads.
TENSOR_PARALLEL = (1, 2, 4, 8)

# Memory of an engine beside weights and KV cache. Its 2.42 GB with 1,024 sequences and 1.58 GB with 256 are a fixed
# part (CUDA context, graphs, activations) and the sampler's buffers, 10.7 bytes for each sequence and each of 103,424
# words. The fixed part was the same for 2,048 to 16,384 tokens a step. Other cards: not measured.
OVERHEAD_BYTES = 1_300_000_000
SEQUENCE_BYTES = 1_107_000
# Larger models have larger activations and graphs; this share of the weights on top is an estimate, not measured.
LARGE_OVERHEAD_SHARE = 0.05
# Buffers through which cards that compute together exchange (NCCL): an estimate, not measured.
EXCHANGE_BYTES = 512 * MIB

# Host memory of an engine, and of each further process of its HTTP server: estimates, not measured on a GPU machine.
HOST_ENGINE_BYTES = 3 * GIB
HOST_SERVER_BYTES = 3 * GIB // 4


@dataclass(frozen=True)
class GpuProfile:
    """Cards from a compute capability and a memory size on; the first row that fits counts.

    `engines` are pairs of cores for a card and engines of a small model on it, rising; fewer cores give one.
    `sequences` is for one engine, `shared_sequences` for each of several. None of `batched_tokens` is vLLM's own 2,048.
    """

    name: str
    from_capability: tuple[int, int]
    from_memory_bytes: int
    dtype: str
    attention_backend: str | None
    memory_share: float
    sequences: int
    shared_sequences: int
    batched_tokens: int | None
    engines: tuple[tuple[int, int], ...]
    attention_reason: str
    reasons: tuple[str, ...]


GPU_PROFILES = (
    GpuProfile(
        name="large Hopper or Blackwell card",
        from_capability=(9, 0),
        from_memory_bytes=70 * GIB,
        dtype="auto",
        attention_backend=None,
        memory_share=0.25,
        # 1,024 is vLLM's own choice; 256 for each of four engines was as fast, twice that leaves room for imbalance.
        sequences=1024,
        shared_sequences=512,
        # 15.9 thousand tok/s at 256 streams with 2,048, 21.8 with 8,192, 20.6 with 16,384.
        batched_tokens=8192,
        # An engine keeps one core busy, its HTTP server one to three more. On 16 cores, with two HTTP processes each:
        # two, three and four engines gave 43.4, 35.5 and 34.0 thousand tok/s at 256 streams, 51.6, 60.3 and 65.3 at
        # 1,024; one gave 28.8 at 256. The threshold is an estimate.
        engines=((8, 2),),
        attention_reason="attention: vLLM's choice (FlashAttention on Hopper, FlashInfer on Blackwell)",
        reasons=("8192 tokens a step: 2048 cost a quarter to a third of the speed on an H200",),
    ),
    GpuProfile(
        name="card",
        from_capability=(8, 0),
        from_memory_bytes=0,
        dtype="auto",
        attention_backend=None,
        memory_share=0.40,
        sequences=256,
        shared_sequences=256,
        # A step of 8,192 tokens would hold up every answer for about 0.1 s on an A10 (estimated from its arithmetic).
        batched_tokens=None,
        # A third or less of an H200's bandwidth and arithmetic, of which one engine uses a third: estimate.
        engines=(),
        attention_reason="attention: vLLM's choice (FlashAttention)",
        reasons=("256 streams and 2048 tokens a step: vLLM's own limits for such a card",),
    ),
    GpuProfile(
        name="Turing",
        from_capability=(7, 5),
        from_memory_bytes=0,
        dtype="float16",
        # FLASH_ATTN and FLASHINFER refuse 7.5 (supports_compute_capability of each in vLLM 0.32).
        attention_backend="TRITON_ATTN",
        memory_share=0.50,
        sequences=256,
        shared_sequences=256,
        batched_tokens=None,
        engines=(),
        attention_reason="attention: Triton, the others need compute capability 8.0",
        reasons=(
            "float16: no bfloat16 before compute capability 8.0",
            "256 streams and 2048 tokens a step: vLLM's own limits for such a card",
        ),
    ),
)

# FP8 KV cache: attention backend from a compute capability on, newest first; None leaves the choice to vLLM, which
# then takes one that can (FlashAttention 3 on 9.0, FlashInfer on 10.0). FLASH_ATTN cannot elsewhere, Triton needs 8.9.
FP8_KV_BACKENDS = (((12, 0), "FLASHINFER"), ((9, 0), None), ((8, 0), "FLASHINFER"))

# Processes of one engine's python HTTP server by the cores that each engine has. With two engines on 16 cores beside an
# H200, at 256 streams: 41.3 thousand tok/s and the first token after 210 ms with one each, 43.4 and 94 ms with two,
# 38.0 and 50 ms with four; at 1,024 streams 38.9, 51.6 and 59.9 thousand. The thresholds are estimates.
API_SERVERS = ((6, 4), (4, 2), (0, 1))


@dataclass(frozen=True)
class CpuProfile:
    """Hosts up to a number of cores serving models up to a size; the first row that fits counts."""

    name: str
    below_cores: float
    below_weight_bytes: float
    dtype: str
    sequences: int
    context_tokens: int
    kv_cache_bytes: int
    overhead_bytes: int
    reason: str
    environment: Mapping[str, str] = field(default_factory=dict)


CPU_PROFILES = (
    CpuProfile(
        "tiny model on a CPU",
        float("inf"),
        128 * MIB,
        "float32",
        16,
        32768,
        GIB // 4,
        5 * GIB // 4,
        # bfloat16 would crash vLLM 0.32 on CPUs with AMX (SIGILL in its attention): matrices this small never go
        # through oneDNN, which is what asks the kernel for the use of AMX tiles.
        "a tiny model runs in float32, in one process and one thread, which starts soonest",
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"},
    ),
    CpuProfile(
        "small CPU", 8, float("inf"), "auto", 16, 8192, GIB, 9 * GIB // 4, "fewer than 8 cores: 16 streams at once"
    ),
    CpuProfile("large CPU", float("inf"), float("inf"), "auto", 64, 32768, 4 * GIB, 3 * GIB, "8 cores and more"),
)


def for_gpu(gpu: Gpu) -> GpuProfile | None:
    """The card's profile; None for a card that vLLM no longer supports."""
    for profile in GPU_PROFILES:
        if gpu.compute_capability >= profile.from_capability and gpu.memory_total_bytes >= profile.from_memory_bytes:
            return profile
    return None


def for_cpu(host: Host, weight_bytes: int) -> CpuProfile:
    """The host's profile for a model of that size."""
    return next(
        profile
        for profile in CPU_PROFILES
        if host.cores < profile.below_cores and weight_bytes < profile.below_weight_bytes
    )
