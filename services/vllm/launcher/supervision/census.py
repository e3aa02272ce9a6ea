"""The processes of an engine as /proc shows them: who is there, in which state, waiting for what; and the memory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from launcher.supervision import guard

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_STATUS_FIELDS = ("State", "VmRSS", "VmHWM", "Threads")
_MOST_THREADS = 64


def describe_processes(groups: Iterable[int]) -> list[dict[str, Any]]:
    """Every living process of these groups; what another user's /proc hides is absent."""
    return [_describe(pid) for group in groups for pid in guard.members(group)]


def _describe(pid: int) -> dict[str, Any]:
    folder = _PROC / str(pid)
    status = dict(line.partition(":")[::2] for line in _text(folder / "status").splitlines())
    threads = sorted(folder.glob("task/[0-9]*"))[:_MOST_THREADS]
    return {
        "pid": pid,
        "name": _text(folder / "comm").strip(),
        # Without arguments: the engine's command stands elsewhere, and may hold a key.
        "title": _text(folder / "cmdline").partition("\0")[0][:200],
        **{name.lower(): status[name].strip() for name in _STATUS_FIELDS if name in status},
        "waits_in": _text(folder / "wchan").strip(),
        "kernel_stack": _text(folder / "stack").splitlines(),
        "thread_states": [
            f"{_text(thread / 'comm').strip()} {_state(thread)} {_text(thread / 'wchan').strip()}" for thread in threads
        ],
    }


def describe_memory() -> dict[str, str]:
    """What the host and the container say about memory, as they write it."""
    rows = dict(line.partition(":")[::2] for line in _text(_PROC / "meminfo").splitlines())
    host: dict[str, str] = {
        name: rows[name].strip() for name in ("MemTotal", "MemAvailable", "SwapFree") if name in rows
    }
    folder = _own_cgroup()
    names = ("memory.max", "memory.current", "memory.peak")
    own = {name: text for name in names if (text := _text(folder / name).strip())}
    return host | own | {"oom_kills": str(oom_kills())}


def oom_kills() -> int:
    """How many processes of this container the kernel has killed for want of memory; 0 where it does not tell."""
    for file in (_own_cgroup() / "memory.events", _CGROUP / "memory/memory.oom_control"):
        for line in _text(file).splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill" and number.isdigit():
                return int(number)
    return 0


def _own_cgroup() -> Path:
    """Inside a container its own namespace makes this the root."""
    line = next((line for line in _text(_PROC / "self/cgroup").splitlines() if line.startswith("0::")), "0::/")
    return _CGROUP / line.removeprefix("0::").lstrip("/")


def _state(folder: Path) -> str:
    rest = _text(folder / "stat").rpartition(")")[2].split()
    return rest[0] if rest else "?"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
