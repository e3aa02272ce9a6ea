"""`python -m bench.peers.run`: our gateway beside its rivals, in turns, and the result kept.

Makes what is missing first (.run/peers). With `--quick` a round of short windows, whose figures are only shown.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gateway.scenarios import EVENTS, Plan, Scenario, streams, whole_answers
from bench.peers import report, result
from bench.peers.install import NotInstalledError, environment, program
from bench.peers.measure import measure
from bench.peers.processes import (
    NotRunningError,
    cores,
    memory_mib,
    on_cores,
    running_engine,
    running_system,
    tree,
)
from bench.peers.systems import ELSEWHERE, SYSTEMS

GAP_MS = 5
UNPACED = Scenario("unpaced", 16, streamed=True, events=EVENTS)
SCENARIOS = (
    *(whole_answers(clients) for clients in (1, 16, 64)),
    *(streams(clients, GAP_MS) for clients in (1, 64, 256)),
    UNPACED,
)
FULL = Plan(SCENARIOS, rounds=5, window_seconds=1.5)
QUICK = Plan(SCENARIOS, rounds=1, window_seconds=0.3)


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    names = [system.name for system in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short windows; nothing is kept")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"some of {', '.join(names)}; nothing is kept",
    )
    parser.add_argument(
        "--gateway-programs",
        type=Path,
        default=Path(sys.executable).parent,
        metavar="FOLDER",
        help="holds the `python` that the gateway runs on; instead of this one's",
    )
    parser.add_argument("--rounds", type=int, help=f"instead of {FULL.rounds}")
    chosen = parser.parse_args(arguments)
    plan = QUICK if chosen.quick else FULL
    plan = Plan(plan.scenarios, chosen.rounds or plan.rounds, plan.window_seconds)
    command = " ".join(["python -m bench.peers.run", *arguments]).replace(str(chosen.gateway_programs), "FOLDER")
    found = run(plan, chosen.systems, command, chosen.gateway_programs)
    print(report.markdown(found))
    if not chosen.quick and len(chosen.systems) == len(names):
        print(f"kept in {result.keep(found).name}")
    return 0


def run(plan: Plan, names: Sequence[str], command: str, gateway_programs: Path) -> dict[str, Any]:
    """Return the result of a plan."""
    load = program("load")
    programs, missing = _installed(names)
    if "gateway" in programs:
        programs["gateway"] = gateway_programs
    found = result.describe(command, plan)
    entries: dict[str, list[dict[str, Any]]] = {}
    core, others = cores()
    found["load_averages"] = [os.getloadavg()[0]]
    with on_cores(others), running_engine() as (engine_port, engine_pid):
        for number in range(plan.rounds):
            # Every other round the other way round, so that what changes on the machine meets all alike.
            for system in sorted(SYSTEMS, key=SYSTEMS.index, reverse=bool(number % 2)):
                if system.name not in programs or system.name in missing:
                    continue
                _say(f"round {number + 1} of {plan.rounds}: {system.name}")
                try:
                    with running_system(system, programs[system.name], engine_port, core) as (port, pid, seconds):
                        entry = _measure(load, plan, port, engine_pid, pid)
                    entries.setdefault(system.name, []).append(entry | {"start_seconds": seconds})
                except NotRunningError as error:
                    _say(f"  {error}")
                    missing[system.name] = f"in round {number + 1}: {error}"
            found["load_averages"].append(os.getloadavg()[0])
    found["systems"] = [
        result.entry_of(system, programs[system.name], entries[system.name])
        for system in SYSTEMS
        if system.name in entries
    ]
    found["not_measured"] = missing
    return found


def _installed(names: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return where each system's programs are, and the reason why a rival has none."""
    programs: dict[str, Path] = {}
    missing = dict(ELSEWHERE)
    for system in SYSTEMS:
        if system.name in names:
            try:
                programs[system.name] = environment(system.peer) if system.peer else Path()
            except NotInstalledError as error:
                missing[system.name] = str(error)
                _say(f"{system.name} is not installed: {error}")
    return programs, missing


def _measure(load: Path, plan: Plan, port: int, engine_pid: int, pid: int | None) -> dict[str, Any]:
    """Return a system's figures of one round, and its memory before and after."""
    entry: dict[str, Any] = {"scenarios": {}}
    entry["memory_before_mib"] = memory_mib(tree(pid)) if pid else None
    for scenario in plan.scenarios:
        pids = [engine_pid, *(tree(pid) if pid else [])]
        figures = measure(load, port, scenario, plan.seconds_of(scenario), pids)
        entry["scenarios"][result.key_of(scenario)] = figures
        _say(f"  {report.line(scenario, figures)}")
    entry["memory_after_mib"] = memory_mib(tree(pid)) if pid else None
    return entry


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
