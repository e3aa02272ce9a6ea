"""`python -m bench.peers.plot`: draw the newest kept result beside it; needs bench/requirements.txt."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
OURS, OTHERS = "#1d4ed8", "#6b7280"
# Scenario, figure, what is said of it.
PANELS = (
    ("whole answer 16", "answers_per_second", "requests a second, 16 clients"),
    ("streams 256", "events_per_second", "events a second, 256 streams"),
    ("streams 256", "cpu_us_per_event", "CPU µs an event, 256 streams"),
)


def main() -> int:
    """Draw and return the exit code."""
    path = max(RESULTS.glob("*.json"))
    # Text as text and no random ids: the file is small and the same figures give the same bytes.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 10}
    draw(json.loads(path.read_text())).savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return 0


def draw(found: dict[str, Any]) -> Figure:
    """Return the figure: a panel for each of three figures, a point for each system that is in the way."""
    systems = [entry for entry in found["systems"] if entry["name"] != "direct"]
    figure = Figure(figsize=(9.6, 0.9 + 0.42 * len(systems)), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
        _points(axes, systems, *panel)
    hardware = found["hardware"]
    figure.suptitle(
        f"One core each: {hardware['cpu']}; {found['taken_at'].partition('T')[0]}, gateway {found['gateway_commit']}; "
        f"medians of {found['rounds']} rounds, lines from least to most; logarithmic",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


def _points(axes: Axes, systems: list[dict[str, Any]], scenario: str, figure: str, title: str) -> None:
    for place, entry in enumerate(reversed(systems)):
        middle, least, most = (entry[which]["scenarios"][scenario][figure] for which in ("median", "least", "most"))
        if not middle:
            continue
        colour = OURS if entry["name"] == "gateway" else OTHERS
        # Points, since a bar's length says nothing where there is no zero.
        axes.plot([least, most], [place, place], color=colour, linewidth=2)
        axes.plot([middle], [place], "o", color=colour, markersize=8)
        axes.annotate(f"{middle:,.0f}", (most, place), (8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(systems)), [entry["name"] for entry in reversed(systems)])
    axes.set_title(title, loc="left", fontsize=9)
    axes.margins(x=0.25, y=0.1)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(visible=True, which="major", axis="both", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
