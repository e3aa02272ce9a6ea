"""The whole path against the bare engine: `python -m bench.e2e.run --edge PORT --direct PORT [PORT …]`.

A running stack is asked through nginx, and its engines directly, in turns within every round, by the client processes
of bench/engine. Prints a Markdown table of medians; with `--out FILE` every round is kept as JSON. With `--clients N`
streams come from N loopback addresses, each of which is a client to a gateway that trusts 127.0.0.1/32 alone.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.e2e.load import add_load, measure


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.e2e.run", description=__doc__)
    parser.add_argument("--edge", type=int, required=True)
    parser.add_argument("--direct", type=int, nargs="+", required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--out", type=Path)
    add_load(parser)
    chosen = parser.parse_args(arguments)
    ways = {"direct": chosen.direct, "edge": [chosen.edge]}
    load_before, found = os.getloadavg(), []
    for streams in chosen.streams:
        windows: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for number in range(chosen.rounds):
            for way in sorted(ways, reverse=bool(number % 2)):
                windows[way].append(measure(ways[way], streams, chosen))
        found.append({"streams": streams, "windows": windows})
        sys.stderr.write(f"measured: {streams} streams\n")
    print(table(found))
    if chosen.out:
        told = {
            "command": " ".join(["python -m bench.e2e.run", *arguments]),
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "load_average_before": load_before,
            "results": found,
        }
        chosen.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return the medians of all loads."""
    lines = [
        "| streams | tokens/s: direct · edge | ratio | first token, ms p50: direct · edge | p99 | failed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for entry in found:
        direct, edge = entry["windows"]["direct"], entry["windows"]["edge"]
        speeds = [statistics.median(one["tokens_per_second"] for one in way) for way in (direct, edge)]
        times = {
            name: " · ".join(
                f"{statistics.median(one['first_token_ms'][name] for one in way):.1f}" for way in (direct, edge)
            )
            for name in ("p50", "p99")
        }
        failures = sum(one["failures"] for one in (*direct, *edge))
        lines.append(
            f"| {entry['streams']} | {speeds[0]:,.0f} · {speeds[1]:,.0f} | **{speeds[1] / speeds[0]:.3f}** "
            f"| {times['p50']} | {times['p99']} | {failures} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
