"""`python -m bench.growth.run`: what the gateway costs as its work grows, and the result kept.

From 1 to 1,024 streams, from 1 KB to 1 MB of prompt, and over a million requests. With `--quick` a round of short
windows and 20,000 requests, whose figures are only shown.
"""

import argparse
import os
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway.result import describe
from bench.gateway.scenarios import Plan, Scenario, whole_answers
from bench.growth import report
from bench.peers import report as peers_report
from bench.peers import result
from bench.peers.install import program
from bench.peers.measure import Figures, measure
from bench.peers.processes import cores, memory_mib, on_cores, running_engine, running_system, tree
from bench.peers.systems import SYSTEMS

GATEWAY = next(system for system in SYSTEMS if system.name == "gateway")
# 25,600 tokens/s at 1,024 streams: below what a core carries.
STREAM_EVENTS, STREAM_GAP_MS = 32, 40
PROMPT_CLIENTS, REQUEST_CLIENTS = 4, 64
STREAMS = (1, 4, 16, 64, 256, 1024)
PROMPT_BYTES = (1_000, 10_000, 100_000, 1_000_000)
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long a run is."""

    rounds: int
    window_seconds: float
    requests: int
    looks: int


FULL = Lengths(rounds=3, window_seconds=3.0, requests=1_000_000, looks=40)
QUICK = Lengths(rounds=1, window_seconds=0.5, requests=20_000, looks=4)


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parts = {"streams": _streams, "prompts": _prompts, "requests": _requests}
    parser = argparse.ArgumentParser(prog="python -m bench.growth.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="nothing is kept")
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts), help="some: nothing is kept")
    chosen = parser.parse_args(arguments)
    lengths = QUICK if chosen.quick else FULL
    command = " ".join(["python -m bench.growth.run", *arguments])
    found = describe(command, Plan((), lengths.rounds, lengths.window_seconds))
    found["load_averages"] = [os.getloadavg()[0]]
    core, others = cores()
    with on_cores(others), running_engine() as (port, pid):
        for part in chosen.parts:
            found[part] = parts[part](Rig(program("load"), port, pid, core), lengths)
            found["load_averages"].append(os.getloadavg()[0])
    print(report.markdown(found))
    if not chosen.quick and len(chosen.parts) == len(parts):
        print(f"kept in {result.keep(found, report.RESULTS).name}")
    return 0


@dataclass(frozen=True, slots=True)
class Rig:
    """The load, the engine's port and process, and the gateway's core."""

    load: Path
    engine_port: int
    engine_pid: int
    core: set[int]

    @contextmanager
    def gateway(self) -> Iterator["Running"]:
        """Run a new gateway."""
        with running_system(GATEWAY, Path(), self.engine_port, self.core) as (port, pid, _):
            if pid is not None:
                yield Running(self, port, pid)


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that runs."""

    rig: Rig
    port: int
    pid: int

    def memory_mib(self) -> float:
        """Return what it has in memory."""
        return memory_mib(tree(self.pid))

    def measure(self, scenario: Scenario, seconds: float, *, prompt_bytes: int = 0) -> Figures:
        """Return a window's figures, with its memory before and at most."""
        before = self.memory_mib()
        pids = [self.rig.engine_pid, *tree(self.pid)]
        with _highest(self.memory_mib) as seen:
            figures = measure(self.rig.load, self.port, scenario, seconds, pids, prompt_bytes=prompt_bytes)
        return figures | {"memory_before_mib": before, "memory_most_mib": max(seen)}


@contextmanager
def _highest(look: Any) -> Iterator[list[float]]:
    """Look again and again meanwhile."""
    seen, over = [look()], threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            seen.append(look())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _streams(rig: Rig, lengths: Lengths) -> list[dict[str, Any]]:
    steps = []
    for clients in STREAMS:
        scenario = Scenario("streams", clients, streamed=True, events=STREAM_EVENTS, gap_ms=STREAM_GAP_MS)
        offered = scenario.offered_events_per_second
        steps.append({"streams": clients, "offered_events_per_second": offered, **_median(rig, scenario, lengths)})
    return steps


def _prompts(rig: Rig, lengths: Lengths) -> list[dict[str, Any]]:
    scenario = whole_answers(PROMPT_CLIENTS)
    return [{"prompt_bytes": size, **_median(rig, scenario, lengths, prompt_bytes=size)} for size in PROMPT_BYTES]


def _median(rig: Rig, scenario: Scenario, lengths: Lengths, *, prompt_bytes: int = 0) -> dict[str, Any]:
    """Return the medians over the rounds, each of which has a gateway of its own, so that none begins with memory."""
    rounds = []
    for _ in range(lengths.rounds):
        with rig.gateway() as gateway:
            rounds.append(gateway.measure(scenario, lengths.window_seconds, prompt_bytes=prompt_bytes))
        most = rounds[-1]["memory_most_mib"]
        _say(f"{prompt_bytes:,} bytes; {peers_report.line(scenario, rounds[-1])}; {most:.1f} MiB at most")
    return {"median": result.over(rounds, statistics.median), "rounds": rounds}


def _requests(rig: Rig, lengths: Lengths) -> dict[str, Any]:
    """Return the memory of one gateway after so and so many requests."""
    looks: list[dict[str, float]] = []
    with rig.gateway() as gateway:
        looks.append({"requests": 0, "memory_mib": gateway.memory_mib()})
        done, seconds, unsound = 0, 0.5, 0
        while done < lengths.requests:
            figures = gateway.measure(whole_answers(REQUEST_CLIENTS), seconds)
            done += figures["asked"]
            unsound += figures["asked"] - figures["clean"]
            looks.append({"requests": done, "memory_mib": gateway.memory_mib()})
            _say(f"{done:,} requests, {looks[-1]['memory_mib']:.1f} MiB")
            # So long that about so many looks are taken, whatever a core carries.
            seconds = lengths.requests / lengths.looks / figures["answers_per_second"]
    return {"looks": looks, "unsound": unsound}


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
