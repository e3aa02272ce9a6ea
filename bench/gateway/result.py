"""A run's result: figures of each window, their medians over the rounds, and what they were measured on."""

import json
import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.gateway.client import Samples
from bench.gateway.processes import ROOT, WAITING
from bench.gateway.scenarios import Plan, Scenario

RESULTS = Path(__file__).parent / "results"
PERCENTILES = (50, 90, 99)
DIGITS = 4
_NS_PER_US = 1000

# Figures of one window, by path and by "p50" and so on.
Figures = dict[str, Any]


def figures_of(samples: Samples, *, through_gateway: bool) -> Figures:
    """Return the figures of one window: times in microseconds, CPU as shares of one core."""
    answers, events = len(samples.answer_ns), len(samples.forward_ns) + len(samples.first_token_ns)
    shares = {name: _rounded(spent / samples.seconds / 1e9) for name, spent in samples.clocks_ns.items()}
    waiting = shares.pop(WAITING)
    figures = {
        "forward_us": _percentiles(samples.forward_ns),
        "first_token_us": _percentiles(samples.first_token_ns),
        "answer_us": _percentiles(samples.answer_ns),
        "answers_per_second": _rounded(answers / samples.seconds),
        "events_per_second": _rounded(events / samples.seconds),
        "cpu_share": shares,
    }
    if through_gateway:
        gateway_us = samples.clocks_ns["gateway"] / _NS_PER_US
        figures["gateway_cpu_us_per_answer"] = _rounded(gateway_us / answers) if answers else None
        figures["gateway_cpu_us_per_event"] = _rounded(gateway_us / events) if events else None
        figures["gateway_waiting_share"] = waiting
    return figures


def entry_of(scenario: Scenario, windows: dict[str, list[Figures]]) -> dict[str, Any]:
    """Return a scenario's entry: of each path every window's figures, and the median of each figure."""
    return {
        "name": scenario.name,
        "clients": scenario.clients,
        "streamed": scenario.streamed,
        "events": scenario.events,
        "gap_ms": scenario.gap_ms,
        "offered_events_per_second": scenario.offered_events_per_second,
        "paths": {path: {"median": _median(rounds), "rounds": rounds} for path, rounds in windows.items()},
    }


def describe(command: str, plan: Plan) -> dict[str, Any]:
    """Return what a result is headed by: how it was made, with what and on what; no name and no path of the machine."""
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "rounds": plan.rounds,
        "window_seconds": plan.window_seconds,
        "hardware": {"cpu": _cpu_model(), "cores": os.cpu_count(), "memory_gib": _memory_gib()},
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("uvloop", "httptools", "uvicorn", "starlette", "fastapi")},
        },
        "gateway_commit": _git("rev-parse", "--short", "HEAD"),
        "gateway_modified": bool(_git("status", "--porcelain", "--", "services/gateway")),
    }


def keep(result: dict[str, Any]) -> Path:
    """Write a result to its file, named by its date and the machine's cores, and return where it is."""
    date, cores = result["taken_at"].partition("T")[0], result["hardware"]["cores"]
    path = RESULTS / f"{date}-{cores}-cores.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def latest() -> Path:
    """Return the newest result's file."""
    return max(RESULTS.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """Return a kept result."""
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def _percentiles(samples: list[int]) -> dict[str, float] | None:
    ordered = sorted(samples)
    if not ordered:
        return None
    last = len(ordered) - 1
    return {f"p{percent}": _rounded(ordered[round(last * percent / 100)] / _NS_PER_US) for percent in PERCENTILES}


def _median(rounds: list[Any]) -> Any:
    """Return the median of each figure over the rounds that have it."""
    known = [figures for figures in rounds if figures is not None]
    if not known:
        return None
    if isinstance(known[0], dict):
        return {key: _median([figures[key] for figures in known]) for key in known[0]}
    return _rounded(statistics.median(known))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
