"""A table of what `bench.e2e.launched` has kept: `python -m bench.e2e.table FILE [FILE …]`, all rounds together."""

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Windows = dict[str, list[dict[str, Any]]]
_COLUMNS = (
    "streams",
    "way",
    "rounds",
    "tokens/s, median (least to most)",
    "of the first way's in the same round",
    "first token, ms p50",
    "more than the first way's",
    "p99",
    "cores (busiest thread)",
    "failed",
)
HEAD = (f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|")


def main(files: Sequence[str]) -> int:
    """Print the table."""
    together: dict[int, Windows] = {}
    for file in files:
        for entry in json.loads(Path(file).read_text(encoding="utf-8"))["results"]:
            # A round's base has to be of the same round: every file brings its own.
            base = next(iter(entry["windows"].values()))
            for way, seen in entry["windows"].items():
                paired = [{**one, "base": first} for one, first in zip(seen, base, strict=True)]
                together.setdefault(entry["streams"], {}).setdefault(way, []).extend(paired)
    print("\n".join([*HEAD, *(row for streams in sorted(together) for row in rows(streams, together[streams]))]))
    return 0


def rows(streams: int, windows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the rows of one number of streams.

    Ways are compared within each round: a machine that is shared is not equally fast from one to the next.
    """
    found: list[str] = []
    first = next(iter(windows.values()))
    for way, seen in windows.items():
        bases = [one.get("base") or base for one, base in zip(seen, _as_many(first, len(seen)), strict=True)]
        speeds = [one["tokens_per_second"] for one in seen]
        pairs = list(zip(seen, bases, strict=True))
        ratios = [one["tokens_per_second"] / base["tokens_per_second"] for one, base in pairs]
        later = statistics.median(_first_token(one, "p50") - _first_token(base, "p50") for one, base in pairs)
        p50, p99 = (statistics.median(_first_token(one, key) for one in seen) for key in ("p50", "p99"))
        found.append(
            f"| {streams:,} | {way} | {len(seen)} | {_spread(speeds, ',.0f')} | {_spread(ratios, '.3f')} "
            f"| {p50:.1f} | {later:+.1f} | {p99:.1f} | {_cores(seen)} | {sum(one['failures'] for one in seen)} |"
        )
    return found


def _as_many(first: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    return [first[number % len(first)] for number in range(count)]


def _first_token(one: Mapping[str, Any], key: str) -> float:
    return float((one["first_token_ms"] or {}).get(key, 0.0))


def _spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _cores(seen: Sequence[Mapping[str, Any]]) -> str:
    """Return the cores of each part, and how full its busiest thread's core was."""
    told = []
    for part in seen[0]["cores"]:
        cores = statistics.median(one["cores"][part] for one in seen)
        busiest = [one["busiest_thread"][part] for one in seen if part in one["busiest_thread"]]
        told.append(f"{part} {cores:.2f}" + (f" ({statistics.median(busiest):.0%})" if busiest else ""))
    return ", ".join(told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
