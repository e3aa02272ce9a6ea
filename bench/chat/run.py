"""`python -m bench.chat.run`: how much later a token is on the page, with many pages at a time; keeps the result.

With `--quick` (half a minute) the figures are only shown.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.chat.client import Browser
from bench.chat.processes import ROOT, Page, running_page

RESULTS = Path(__file__).parent / "results"
GAP_MS = 25
SECONDS = 8
ROUNDS = 3
PAGES = (1, 25, 50)
QUICK_PAGES = (1, 50)
# Memory is looked at after each of so many rounds of the widest load that the goal names.
GOAL_PAGES = 50
MEMORY_ROUNDS = 4


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.chat.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="half a minute instead of three; nothing is kept")
    chosen = parser.parse_args(arguments)
    found = asyncio.run(run(quick=chosen.quick))
    found["command"] = " ".join(["python -m bench.chat.run", *arguments])
    text = json.dumps(found, indent=1) + "\n"
    print(text)
    if not chosen.quick:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{found['taken_at'][:10]}-{found['cores']}-cores.json"
        path.write_text(text, encoding="utf-8")
    return 0


async def run(*, quick: bool) -> dict[str, Any]:
    """Return everything measured, with what it was measured on."""
    found = describe()
    seconds, rounds = (5, 1) if quick else (SECONDS, ROUNDS)
    with tempfile.TemporaryDirectory() as scratch:
        async with running_page(Path(scratch)) as page:
            await measure(page, 10, 5)
            found["loads"] = []
            for pages in QUICK_PAGES if quick else PAGES:
                windows = [await measure(page, pages, seconds) for _ in range(rounds)]
                found["loads"].append({"pages": pages, "rounds": windows, "median": medians(windows)})
                sys.stderr.write(f"measured: {pages} pages\n")
            found["memory_mib"] = []
            for _ in range(1 if quick else MEMORY_ROUNDS):
                await measure(page, GOAL_PAGES, seconds)
                found["memory_mib"].append(round(page.resident_bytes / 2**20, 1))
    found["load_average_after"] = os.getloadavg()
    return found


async def measure(page: Page, pages: int, seconds: float) -> dict[str, float]:
    """Open so many pages, let each read a stream for so long, close them, and return the figures."""
    browsers = [Browser() for _ in range(pages)]
    for browser in browsers:
        await browser.open(page.url)
    cpu_ns, waited_ns, started_at = page.cpu_ns, page.waited_ns, time.monotonic()
    question = f"{GAP_MS} {round(seconds * 1000 / GAP_MS)}"
    await asyncio.gather(*(browser.ask(question) for browser in browsers))
    elapsed_seconds = time.monotonic() - started_at
    busy = (page.cpu_ns - cpu_ns) / 1e9 / elapsed_seconds
    await asyncio.gather(*(browser.close() for browser in browsers))
    delays_ms = [delay / 1e6 for browser in browsers for delay in browser.delays_ns]
    percentiles = statistics.quantiles(delays_ms, n=100)
    return {
        "tokens": len(delays_ms),
        "tokens_a_second": round(len(delays_ms) / elapsed_seconds),
        "frames_a_second": round(sum(browser.frames for browser in browsers) / elapsed_seconds),
        "delay_ms_p50": round(percentiles[49], 1),
        "delay_ms_p90": round(percentiles[89], 1),
        "delay_ms_p99": round(percentiles[98], 1),
        "page_cores": round(busy, 2),
        "page_us_a_token": round(busy * elapsed_seconds * 1e6 / len(delays_ms)),
        "page_waited_for_a_core": round((page.waited_ns - waited_ns) / 1e9 / elapsed_seconds, 2),
        "page_mib": round(page.resident_bytes / 2**20, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def medians(windows: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the rounds."""
    return {name: statistics.median(window[name] for window in windows) for name in windows[0]}


def describe() -> dict[str, Any]:
    """Return when, where and with which versions it is measured."""
    cpu = next(
        line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    )
    commit = ["git", "rev-parse", "--short", "HEAD"]
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip(),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("chainlit", "python-socketio", "python-engineio", "uvicorn", "httpx")
        },
        "gap_ms": GAP_MS,
        "load_average_before": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
