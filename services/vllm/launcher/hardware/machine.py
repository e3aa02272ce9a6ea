"""What a machine has, as values: its NVIDIA cards and its host; sizes in bytes."""

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Process:
    """A process that computes on a card; `used_bytes` is None where the driver does not tell."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA card, or one MIG slice of it, as the driver reports it.

    `cuda_version` is the newest CUDA that the driver library runs; `ecc` and `cuda_version` are None where it does not
    tell. A card with `unified_memory` has none of its own: its memory is the host's.
    """

    index: int
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    memory_total_bytes: int
    memory_free_bytes: int
    driver_version: str
    cuda_version: tuple[int, int] | None = None
    processes: tuple[Process, ...] = ()
    ecc: bool | None = None
    unified_memory: bool = False
    mig: bool = False

    @property
    def selector(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it, in the order of PCI addresses."""
        return self.uuid if self.mig else str(self.index)


@dataclass(frozen=True)
class Host:
    """The machine, or the container's part of it."""

    machine: str
    cores: int
    memory_total_bytes: int
    memory_available_bytes: int
    shared_memory_bytes: int
    cpu_flags: frozenset[str]


@dataclass(frozen=True)
class Hardware:
    """GPUs in the order in which CUDA shows them, why there are none if that is a fault, and the host."""

    gpus: tuple[Gpu, ...]
    gpu_problem: str
    host: Host
