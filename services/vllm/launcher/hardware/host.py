"""The machine or the container around the engine: cores, memory and CPU flags, within the cgroup's limits."""

import math
import os
import platform
from pathlib import Path

from launcher.hardware.machine import Host

# Above this a cgroup v1 limit means "none": the kernel writes the largest page-aligned number.
_NO_LIMIT = 1 << 60
# Of the CPU's flags only those that decide whether and how vLLM computes.
_VECTORS = ("avx", "amx", "asimd", "bf16", "i8mm", "sve")


def read(root: Path = Path("/")) -> Host:
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
            return frozenset(flag for flag in line.partition(":")[2].split() if flag.startswith(_VECTORS))
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
