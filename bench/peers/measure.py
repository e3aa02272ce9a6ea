"""One window: the load against one port, and its figures."""

import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gateway.scenarios import Scenario
from bench.peers.processes import NotRunningError
from bench.peers.systems import KEY

SETTLE_SECONDS, TAIL_SECONDS = 0.3, 60.0
_DIGITS = 4

# Figures of one window, some of them by "p50" and so on.
Figures = dict[str, Any]


def measure(
    load: Path, port: int, scenario: Scenario, seconds: float, pids: Sequence[int], *, prompt_bytes: int = 0
) -> Figures:
    """Return the figures of one window: times in ms, CPU in µs and as shares of one core.

    `pids` are the engine's and then the system's. Raises NotRunningError if the system takes no connections.
    """
    options: dict[str, Any] = {
        "port": port,
        "clients": scenario.clients,
        "events": scenario.events,
        "gap-ms": scenario.gap_ms,
        "seconds": seconds,
        "settle": SETTLE_SECONDS,
        "tail": TAIL_SECONDS,
        "key": KEY,
        "prompt-bytes": prompt_bytes,
        "pids": ",".join(str(pid) for pid in pids),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [load, *words, *(["--streamed"] if scenario.streamed else [])], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotRunningError(f"the load ended with {done.returncode}: {done.stderr.strip()}")
    return _figures(json.loads(done.stdout))


def _figures(found: dict[str, Any]) -> Figures:
    seconds, cpu = found["seconds"], found["cpu_us"]
    return {
        "answers_per_second": _rounded(found["answers"] / seconds),
        "events_per_second": _rounded(found["events"] / seconds),
        "answer_ms": _in_ms(found["answer_us"]),
        "first_token_ms": _in_ms(found["first_token_us"]),
        "asked": found["asked"],
        "clean": found["clean"],
        "clean_share": _down(found["clean"] / found["asked"]) if found["asked"] else None,
        "unfinished": found["unfinished"],
        "first_fault": found["first_fault"],
        "cpu_us_per_answer": _rounded(cpu["system"] / found["answers"]) if found["answers"] else None,
        "cpu_us_per_event": _rounded(cpu["system"] / found["events"]) if found["events"] else None,
        "cpu_share": {name: _rounded(spent / seconds / 1e6) for name, spent in cpu.items()},
    }


def _in_ms(times_us: dict[str, float] | None) -> dict[str, float] | None:
    return {name: _rounded(value / 1000) for name, value in times_us.items()} if times_us else None


def _down(share: float) -> float:
    """Round so that only what is whole comes out as whole."""
    return math.floor(share * 10**_DIGITS) / 10**_DIGITS


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
