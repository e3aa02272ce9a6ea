"""What a kind of machine gets, as data; the plan applies it.

Sources of the numbers: docs/facts.md. Overheads are the engine's memory beside weights and KV cache. For 70 GiB
cards it is measured (six engines with 8.4 GiB of KV cache took 69 GiB of an H200: 2.5 GiB each); for CPUs it is
measured on two cores; for smaller cards it is an estimate with a margin, whose step is a quarter as large.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.hardware import GIB, MIB, Gpu, Host

# vLLM 0.33 is built for CUDA 13, which dropped Volta.
LOWEST_COMPUTE_CAPABILITY = (7, 5)
# vLLM's shared-memory rings need 160 MiB; Docker's default /dev/shm has 64.
LOWEST_SHARED_MEMORY_BYTES = 160 * MIB


@dataclass(frozen=True)
class GpuProfile:
    """Cards from a compute capability and a memory size on; the first row that fits counts."""

    name: str
    from_capability: tuple[int, int]
    from_memory_bytes: int
    dtype: str
    memory_share: float
    overhead_bytes: int
    reason: str


GPU_PROFILES = (
    GpuProfile(
        "large card", (8, 0), 70 * GIB, "auto", 0.25, 3 * GIB, "bfloat16; a quarter of the card is ample for 0.3B"
    ),
    GpuProfile("card", (8, 0), 0, "auto", 0.40, 2 * GIB, "bfloat16; 40 % keeps a 24 GB card below 10.5 GB"),
    GpuProfile("Turing", (7, 5), 0, "float16", 0.50, 3 * GIB // 2, "no bfloat16 before compute capability 8.0"),
)


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
