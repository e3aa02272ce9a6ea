"""`python -m bench.gateway.run`: measure the gateway against the direct way and keep the result.

With `--quick` (20 s) the figures are only shown.
"""

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.gateway import report, result
from bench.gateway.client import measure
from bench.gateway.processes import Paths, running_paths
from bench.gateway.scenarios import FULL, QUICK, Plan, Scenario


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 seconds instead of three minutes; nothing is kept")
    chosen = parser.parse_args(arguments)
    plan = QUICK if chosen.quick else FULL
    found = uvloop.run(run(plan, " ".join(["python -m bench.gateway.run", *arguments])))
    print(report.markdown(found))
    if not chosen.quick:
        print(f"kept in {result.keep(found).name}")
    return 0


async def run(plan: Plan, command: str) -> dict[str, Any]:
    """Return the result of a plan."""
    found = result.describe(command, plan)
    found["load_average_before"] = os.getloadavg()
    gc.disable()
    with tempfile.TemporaryDirectory() as scratch:
        async with running_paths(Path(scratch)) as paths:
            found["scenarios"] = [await _measure_in_turns(scenario, plan, paths) for scenario in plan.scenarios]
    found["load_average_after"] = os.getloadavg()
    return found


async def _measure_in_turns(scenario: Scenario, plan: Plan, paths: Paths) -> dict[str, Any]:
    """Measure both paths in every round, in turns, so that what changes on the machine meets both."""
    windows: dict[str, list[result.Figures]] = {"direct": [], "gateway": []}
    ports = {"direct": paths.direct, "gateway": paths.gateway}
    for number in range(plan.rounds):
        for path in sorted(ports, reverse=bool(number % 2)):
            samples = await measure(ports[path], scenario, plan.seconds_of(scenario), paths.clocks_ns)
            windows[path].append(result.figures_of(samples, through_gateway=path == "gateway"))
            gc.collect()
    sys.stderr.write(f"measured: {scenario.name}, {scenario.clients} at a time\n")
    return result.entry_of(scenario, windows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
