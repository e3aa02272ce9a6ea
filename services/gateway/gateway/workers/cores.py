"""How many cores the gateway may use."""

import math
import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


def usable_cores(groups: Path = GROUPS, own_group: Path = Path("/proc/self/cgroup")) -> int:
    """Return the cores that this process may run on, or that its control groups (version 2) give it time for."""
    cores = len(os.sched_getaffinity(0))
    try:
        path = next(line[3:] for line in own_group.read_text(encoding="utf-8").splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return cores
    group = groups / path.strip("/")
    quotas = [_quota(place / "cpu.max") for place in (group, *group.parents) if place.is_relative_to(groups)]
    return max(1, min([cores, *(math.floor(quota) for quota in quotas if quota is not None)]))


def _quota(file: Path) -> float | None:
    """Return how many cores' time a group has; None without a limit."""
    try:
        most, period = file.read_text(encoding="ascii").split()
        return int(most) / int(period)
    except (OSError, ValueError):
        return None
