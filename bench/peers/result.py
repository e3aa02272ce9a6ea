"""A run's result: every window's figures, their medians and extremes over the rounds, and what they were taken on."""

import json
import shutil
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.gateway import result as gateway_result
from bench.gateway.scenarios import Plan, Scenario
from bench.peers import install
from bench.peers.systems import System

RESULTS = Path(__file__).parent / "results"
_DIGITS = 4


def key_of(scenario: Scenario) -> str:
    """Return what a scenario is called in a result."""
    return f"{scenario.name} {scenario.clients}"


def describe(command: str, plan: Plan) -> dict[str, Any]:
    """Return what a result is headed by: how it was made and on what; no name and no path of the machine."""
    return gateway_result.describe(command, plan) | {
        "offered_events_per_second": {
            key_of(scenario): scenario.offered_events_per_second for scenario in plan.scenarios if scenario.gap_ms
        }
    }


def entry_of(system: System, programs: Path, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a system's entry: every round's figures, and the median, least and most of each."""
    return {
        "name": system.name,
        "is_doing": system.is_doing,
        "version": _version_of(system, programs),
        "median": over(rounds, statistics.median),
        "least": over(rounds, min),
        "most": over(rounds, max),
        "rounds": rounds,
    }


def _version_of(system: System, programs: Path) -> str:
    if system.peer:
        return install.version(system.peer)
    if system.name == "nginx":
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        told = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
        return told.partition("nginx/")[2].split()[0]
    if system.name == "gateway":
        return subprocess.run([programs / "python", "-V"], capture_output=True, text=True, check=True).stdout.strip()
    return ""


def over(rounds: Sequence[Any], choose: Callable[[list[float]], float]) -> Any:
    """Return one of each figure over the rounds that have it; words have no middle and are left out."""
    known = [figures for figures in rounds if figures is not None and not isinstance(figures, str)]
    if not known:
        return None
    if isinstance(known[0], dict):
        return {name: over([figures[name] for figures in known], choose) for name in known[0]}
    return float(f"{choose(known):.{_DIGITS}g}")


def keep(found: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a result to its file, named by its date and the machine's cores, and return where it is."""
    date, cores = found["taken_at"].partition("T")[0], found["hardware"]["cores"]
    path = folder / f"{date}-{cores}-cores.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def latest(folder: Path = RESULTS) -> Path:
    """Return the newest result's file."""
    return max(folder.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """Return a kept result."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
