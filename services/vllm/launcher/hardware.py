"""What this machine has: NVIDIA GPUs by nvidia-smi, and the host's cores and memory within its cgroup."""

import csv
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30

QUERY = ("index", "uuid", "name", "compute_cap", "memory.total", "memory.free", "driver_version")
NVIDIA_SMI = ("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
_QUERY_TIMEOUT_SECONDS = 20
# Above this a cgroup v1 limit means "none": the kernel writes the largest page-aligned number.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA card as the driver reports it; memory in bytes, 0 where the driver does not tell."""

    index: int
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    memory_total_bytes: int
    memory_free_bytes: int
    driver_version: str


@dataclass(frozen=True)
class Host:
    """The machine, or the container's part of it; sizes in bytes."""

    machine: str
    cores: int
    memory_total_bytes: int
    memory_available_bytes: int
    shared_memory_bytes: int
    cpu_flags: frozenset[str]


@dataclass(frozen=True)
class Hardware:
    """GPUs in the driver's order, why there are none if that is a fault, and the host."""

    gpus: tuple[Gpu, ...]
    gpu_problem: str
    host: Host


def detect(environment: Mapping[str, str]) -> Hardware:
    """Ask the machine; takes as long as nvidia-smi does, at most 20 s."""
    gpus, problem = _ask_driver()
    return Hardware(visible(gpus, environment.get("CUDA_VISIBLE_DEVICES")), problem, read_host())


def _ask_driver() -> tuple[tuple[Gpu, ...], str]:
    try:
        answer = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        return (), ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi: {error}"
    if answer.returncode:
        lines = (answer.stdout + answer.stderr).strip().splitlines() or ["no output"]
        return (), f"nvidia-smi ended with {answer.returncode}: {lines[0]}"
    return parse_nvidia_smi(answer.stdout)


def parse_nvidia_smi(text: str) -> tuple[tuple[Gpu, ...], str]:
    """Read the answer to NVIDIA_SMI; the second value says why no card could be read from it."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if not row:
            continue
        if len(row) != len(QUERY) or not row[0].strip().isdigit():
            return (), f"nvidia-smi answered {','.join(row)!r}"
        index, uuid, name, capability, total, free, driver = (cell.strip() for cell in row)
        major, _, minor = capability.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            return (), f"nvidia-smi does not tell the compute capability of {name}: its driver {driver} is too old"
        gpus.append(Gpu(int(index), uuid, name, (int(major), int(minor)), _mib(total), _mib(free), driver))
    return tuple(gpus), ""


def _mib(cell: str) -> int:
    return int(cell) * MIB if cell.isdigit() else 0


def visible(gpus: tuple[Gpu, ...], selection: str | None) -> tuple[Gpu, ...]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order; like CUDA, stop at the first unknown one."""
    if selection is None:
        return gpus
    chosen: list[Gpu] = []
    for word in (part.strip() for part in selection.split(",")):
        match = [gpu for gpu in gpus if word and (word == str(gpu.index) or gpu.uuid.startswith(word))]
        if not match:
            break
        chosen.append(match[0])
    return tuple(chosen)


def read_host(root: Path = Path("/")) -> Host:
    """Read cores, memory and CPU flags below a root that has proc, sys and dev."""
    meminfo = _meminfo(root)
    limit, used = _cgroup_memory(root)
    total, available = meminfo.get("MemTotal", 0), meminfo.get("MemAvailable", 0)
    if limit is not None:
        total, available = min(total, limit), min(available, max(0, limit - used))
    return Host(
        machine=platform.machine(),
        cores=_cores(root),
        memory_total_bytes=total,
        memory_available_bytes=available,
        shared_memory_bytes=_file_system_bytes(root / "dev/shm"),
        cpu_flags=_cpu_flags(root),
    )


def _meminfo(root: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(root / "proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1 and row[1].isdigit()}


def _cgroup_memory(root: Path) -> tuple[int | None, int]:
    """Limit of the container (None: there is none) and what it uses without the page cache it can drop."""
    places = (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    )
    base = root / "sys/fs/cgroup"
    for limit_file, used_file, stat_file, droppable in places:
        limit = _text(base / limit_file).strip()
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            rows = (line.split() for line in _text(base / stat_file).splitlines())
            cache = sum(int(row[1]) for row in rows if row[0] == droppable)
            return int(limit), int(_text(base / used_file).strip() or 0) - cache
    return None, 0


def _cores(root: Path) -> int:
    base = root / "sys/fs/cgroup"
    quota, period, *_ = (*_text(base / "cpu.max").split(), "", "")
    if not quota:
        quota = _text(base / "cpu/cpu.cfs_quota_us").strip()
        period = _text(base / "cpu/cpu.cfs_period_us").strip()
    usable = len(os.sched_getaffinity(0))
    if quota.isdigit() and period.isdigit():
        return max(1, min(usable, math.ceil(int(quota) / int(period))))
    return usable


def _cpu_flags(root: Path) -> frozenset[str]:
    for line in _text(root / "proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _file_system_bytes(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_blocks * status.f_frsize


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
