"""What one process of the native way says of itself, and what it and its children hold, from /proc."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.way import Usage

PROC = Path("/proc")


def note_of(info: Mapping[str, Any]) -> str:
    """Return all that supervisord knows of a process, on one line."""
    parts = [f"{info['name']}: {str(info['statename']).lower()}"]
    if info.get("exitstatus"):
        parts.append(f"last exit code {info['exitstatus']}")
    if info.get("spawnerr"):
        parts.append(str(info["spawnerr"]))
    if info.get("description"):
        parts.append(str(info["description"]))
    return ", ".join(parts)


def usage_of_tree(pid: int, started_at: str) -> Usage:
    """Return what a process and all that it started hold; what is gone meanwhile counts nothing."""
    parts = [_of_one(member) for member in tree_of(pid)]
    memory, handles, threads = (sum(column) for column in zip(*parts, strict=True))
    return Usage(memory, handles, threads, started_at)


def tree_of(pid: int) -> list[int]:
    """Return a process and all that it started, itself first."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        parent = _status(int(folder.name)).get("PPid")
        if parent is not None:
            children.setdefault(int(parent), []).append(int(folder.name))
    found, open_ends = [pid], [pid]
    while open_ends:
        open_ends = [child for parent in open_ends for child in children.get(parent, [])]
        found += open_ends
    return found


def _of_one(pid: int) -> tuple[int, int, int]:
    status = _status(pid)
    try:
        handles = sum(1 for _ in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        handles = 0
    kilobytes = int(status.get("VmRSS", "0").split()[0])
    return kilobytes * 1024, handles, int(status.get("Threads", "0"))


def _status(pid: int) -> dict[str, str]:
    try:
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
