"""`python -m bench.gateway.plot`: draw the newest kept result beside it; needs bench/requirements.txt."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

RESULTS = Path(__file__).parent / "results"
GAP_MS = 5
BAR_MS = 1
COLOURS = {"direct": "#6b7280", "gateway": "#1d4ed8"}
STYLES = {"p50": "-", "p99": "--"}
NAMES = {"direct": "direct", "gateway": "through the gateway"}


def main() -> int:
    """Draw and return the exit code."""
    path = max(RESULTS.glob("*.json"))
    # Text as text and no random ids: the file is small and the same figures give the same bytes.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 10}
    drawn = draw(json.loads(path.read_text()))
    drawn.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return 0


def draw(result: dict[str, Any]) -> Figure:
    """Return the figure: an event's way from engine to client against the number of streams."""
    scenarios = [scenario for scenario in result["scenarios"] if scenario["gap_ms"] == GAP_MS]
    clients = [scenario["clients"] for scenario in scenarios]
    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    axes = figure.subplots()
    for path, colour in COLOURS.items():
        for percentile, style in STYLES.items():
            times = [scenario["paths"][path]["median"]["forward_us"][percentile] / 1000 for scenario in scenarios]
            axes.plot(clients, times, style, color=colour, marker="o", markersize=4, linewidth=1.8)
            label = f"{NAMES[path]}, {percentile}"
            axes.annotate(
                label, (clients[-1], times[-1]), (8, 0), textcoords="offset points", va="center", color=colour
            )
    axes.axhline(BAR_MS, color="#b91c1c", linewidth=1, linestyle=":")
    axes.annotate(
        "bar for the difference of p50: 1 ms",
        (clients[0], BAR_MS),
        (0, 30),
        textcoords="offset points",
        color="#b91c1c",
    )
    _dress(axes, clients)
    hardware = result["hardware"]
    axes.set_title(
        f"An event's way from the engine to the client\n{hardware['cpu']}, {hardware['cores']} cores; "
        f"{result['taken_at'].partition('T')[0]}, gateway {result['gateway_commit']}",
        loc="left",
        fontsize=10,
    )
    return figure


def _dress(axes: Axes, clients: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(clients, [str(number) for number in clients])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(f"streams at a time, each with an event every {GAP_MS} ms")
    axes.set_ylabel("time on the way, ms (logarithmic)")
    axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
