"""`python -m bench.e2e.launched`: gateways and nginxes before the engines that the launcher plans, all ways in turns.

Needs the launcher (services/vllm) on PYTHONPATH beside vLLM. Starts a launcher, or takes the one that `--leave` left
running; writes the result after every number of streams.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.e2e.load import add_load, measure
from bench.e2e.stack import Commands, Stack, Way
from bench.e2e.table import Windows, rows
from bench.engine import result
from bench.engine.card import Card
from bench.engine.servers import LOGS, Launched, running

RESULTS = Path(__file__).parent / "results"
_RESERVE_SECONDS = 10.0
_SPREAD_SECONDS = 2.5


def main(arguments: Sequence[str]) -> int:
    """Start, measure, keep, and leave nothing behind but what was asked for."""
    chosen = _parser().parse_args(arguments)
    ends_at = time.monotonic() + chosen.limit
    LOGS.mkdir(exist_ok=True)
    ways = [Way(text) for text in chosen.ways]
    told: dict[str, Any] = {
        **result.describe(" ".join(["python -m bench.e2e.launched", *arguments]), Card().describe(), result.packages()),
        "note": chosen.note,
        "not_done": [],
        "results": [],
    }
    launcher = running(chosen.base_port + 90)
    if launcher is None:
        launcher = Launched("e2e", _settings(chosen))
    stack = None
    try:
        if isinstance(launcher, Launched):
            told["serving_after_seconds"] = launcher.wait_until_serving()
        commands = Commands(shlex.split(chosen.gateway), shlex.split(chosen.nginx), chosen.state_url)
        stack = Stack(launcher.engines(), chosen.base_port + 90, commands)
        told["engines"] = len(stack.engines)
        for way in ways:
            stack.open(way)
        _say(ends_at, f"{len(stack.engines)} engines, {len(ways)} ways")
        for streams in chosen.streams:
            windows, undone = _measure_all(stack, ways, streams, chosen, ends_at)
            told["not_done"] += undone
            if windows:
                told["results"].append({"streams": streams, "windows": windows})
                print("\n".join(rows(streams, windows)), flush=True)
            _say(ends_at, f"{streams} streams")
            result.write(told, chosen.out / f"{chosen.name}.json")
    finally:
        if stack:
            stack.stop()
        if isinstance(launcher, Launched) and not chosen.leave:
            launcher.stop()
    return 0


def _measure_all(
    stack: Stack, ways: Sequence[Way], streams: int, chosen: argparse.Namespace, ends_at: float
) -> tuple[Windows, list[str]]:
    """Measure every way in every round, each round in another order, as far as there is time; and say what is not."""
    windows: Windows = {}
    cost = (chosen.seconds + chosen.settle + _SPREAD_SECONDS) * len(ways)
    for number in range(chosen.rounds):
        if time.monotonic() + cost + _RESERVE_SECONDS > ends_at:
            return windows, [f"{streams} streams, from round {number + 1} on: no time left"]
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            seen = measure(stack.ports(way), streams, chosen, stack.meter(way))
            windows.setdefault(way.text, []).append(seen)
    return windows, []


def _settings(chosen: argparse.Namespace) -> dict[str, str]:
    return {
        "ENGINE_MODEL": chosen.checkpoint,
        "ENGINE_SERVED_NAME": chosen.model,
        "ENGINE_PORT": str(chosen.base_port),
        "ENGINE_STATUS_PORT": str(chosen.base_port + 90),
        "ENGINE_CACHE_DIR": str(LOGS / "shared"),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.e2e.launched", description=__doc__)
    parser.add_argument("--checkpoint", default="/tmp/model", help="the model's folder")  # noqa: S108 - the GPU machine's
    parser.add_argument("--gateway", default="python3 -m gateway", help="command that starts one")
    parser.add_argument("--nginx", default="nginx", help="command that starts one")
    parser.add_argument("--state-url", default="redis://127.0.0.1:6379", help="of gateways with several workers")
    parser.add_argument("--ways", nargs="+", default=["direct", "edge:1", "edge:4"], help=Way.__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[256, 64, 16, 1, 1024])
    parser.add_argument("--base-port", type=int, default=18000)
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--leave", action="store_true", help="leave the launcher running")
    parser.add_argument("--note", default="", help="kept in the result")
    parser.add_argument("--name", default="launched", help="of the result's file")
    parser.add_argument("--out", type=Path, default=RESULTS)
    add_load(parser)
    return parser


def _say(ends_at: float, text: str) -> None:
    print(f"[{ends_at - time.monotonic():4.0f} s left] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
