"""`python -m bench.chat.plot`: draw the newest kept result beside it; needs bench/requirements.txt."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
GOAL_MS = 100
PERCENTILES = {"delay_ms_p50": ("p50", "-"), "delay_ms_p90": ("p90", "--"), "delay_ms_p99": ("p99", ":")}


def main() -> int:
    """Draw and return the exit code."""
    path = max(RESULTS.glob("*.json"))
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 10}
    draw(json.loads(path.read_text())).savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return 0


def draw(result: dict[str, Any]) -> Figure:
    """Return the figure: a token's delay on the page, and the page's memory, against time."""
    figure = Figure(figsize=(7.6, 3.6), layout="constrained")
    delays, memory = figure.subplots(1, 2, width_ratios=[2, 1])
    pages = [load["pages"] for load in result["loads"]]
    for name, (label, style) in PERCENTILES.items():
        values = [load["median"][name] for load in result["loads"]]
        delays.plot(pages, values, style, color="#1d4ed8", marker="o", markersize=4)
        delays.annotate(label, (pages[-1], values[-1]), (6, 0), textcoords="offset points", va="center")
    delays.axhline(GOAL_MS, color="#b91c1c", linewidth=1, linestyle=":")
    delays.annotate("goal for p50", (pages[0], GOAL_MS), (0, 4), textcoords="offset points", color="#b91c1c")
    delays.set_xlabel(f"pages at a time, a token each {result['gap_ms']} ms")
    delays.set_ylabel("delay of a token, ms")
    delays.set_ylim(bottom=0)
    memory.plot(
        range(1, len(result["memory_mib"]) + 1), result["memory_mib"], color="#1d4ed8", marker="o", markersize=4
    )
    memory.set_xlabel("rounds of 50 pages")
    memory.set_ylabel("memory of the page's process, MiB")
    memory.set_ylim(bottom=0)
    for axes in (delays, memory):
        axes.grid(visible=True, color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{result['cpu']}, {result['cores']} cores, load {result['load_average_before'][0]:.0f} to "
        f"{result['load_average_after'][0]:.0f}; {result['taken_at'][:10]}, {result['commit']}",
        fontsize=9,
    )
    return figure


if __name__ == "__main__":
    sys.exit(main())
