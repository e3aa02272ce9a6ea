"""One client at 50 times its share, and the first tokens of nine others: `python -m bench.admission.flood`.

In calculated time (simulated.py): a round takes some ten seconds of CPU. Prints Markdown; `--keep
FILE` writes the figures as JSON.
"""

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.rates import Allowance
from gateway.settings import Settings

from bench.admission.simulated import TOKENS, Asker, Machine, simulate

POLITE, TIMES = 9, 50
WARM_SECONDS, SECONDS = 30.0, 120.0
# Steps that take as long however many sequences are in them, and such that take twice as long when all are.
MACHINES = {
    "16 sequences, 40 ms a step": Machine(16, 0.04),
    "16 sequences, 20 to 40 ms a step": Machine(16, 0.02, 0.02 / 16),
}
DEFAULTS = Settings()
LIMITS = Allowance(DEFAULTS.rate_limit_requests, DEFAULTS.rate_limit_tokens, DEFAULTS.max_streams_per_client)


@dataclass(frozen=True)
class Case:
    """A machine by its name, and the random numbers of a round."""

    name: str
    seed: int

    @property
    def half(self) -> float:
        """Requests a second of a client that asks for half of a tenth."""
        machine = MACHINES[self.name]
        full_step = machine.step_seconds + machine.sequence_seconds * machine.sequences
        return machine.sequences / (full_step * TOKENS) / (POLITE + 1) / 2

    def measure(self, load: str, others: list[Asker], allowance: Allowance) -> dict[str, Any]:
        """Measure the nine beside these others."""
        askers = [*(Asker(f"polite-{index}", self.half) for index in range(POLITE)), *others]
        machine = MACHINES[self.name]
        found = simulate(machine, askers, allowance, warm_seconds=WARM_SECONDS, seconds=SECONDS, seed=self.seed)
        return {"machine": self.name, "load": load, "seed": self.seed, **found}


def flood(case: Case) -> list[dict[str, Any]]:
    """Measure nine clients, at half of a tenth each, beside one of their kind and beside what else there may be."""
    alike = case.measure("all alike", _others(case.half, 1), Allowance())
    flooded = case.measure("flood", _others(TIMES * case.half, 1), Allowance())
    # As many answers as the flood was given, by clients that ask as the nine do.
    instead = max(1, round(flooded["answers_a_second"] / case.half) - POLITE)
    many = case.measure("as many answers, by many", _others(case.half, instead), Allowance())
    limited = case.measure("flood, limits as by default", _others(TIMES * case.half, 1), LIMITS)
    return [alike, flooded, many, limited]


def _others(rate: float, number: int) -> list[Asker]:
    return [Asker(f"other-{index}", rate, counted=False) for index in range(number)]


def main() -> None:
    """Measure all, and print medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    rows = [row for name in MACHINES for seed in range(arguments.rounds) for row in flood(Case(name, seed))]
    for name in MACHINES:
        base = 0.0
        for load in dict.fromkeys(row["load"] for row in rows):
            found = [row for row in rows if (row["machine"], row["load"]) == (name, load)]
            median, p90, answers, batch = (
                statistics.median(row[figure] for row in found)
                for figure in ("median_ms", "p90_ms", "answers_a_second", "batch")
            )
            base = base or median
            print(f"| {name} | {load} | {median:.1f} | {median / base:.2f} | {p90:.0f} | {answers:.1f} | {batch:.1f} |")
    if arguments.keep:
        arguments.keep.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
