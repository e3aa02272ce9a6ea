"""`python -m bench.engine.plot`: draw the kept results; needs bench/requirements.txt."""

import sys
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from bench.engine.report import kept
from bench.engine.result import RESULTS

STREAMS = (1, 16, 64, 256, 1024)
COLOURS = {
    "Python, 1 engine": "#9ca3af",
    "Python, 4 API servers": "#4b5563",
    "Python, 2 engines of 4 API servers": "#dc2626",
    "Python, 4 engines of 2 API servers": "#f97316",
    "Rust, 1 engine": "#93c5fd",
    "Rust, 2 engines": "#3b82f6",
    "Rust, 3 engines": "#1d4ed8",
    "Rust, 4 engines": "#1e3a8a",
    "combined, 4 engines": "#b45309",
    "MPS, 4 engines": "#15803d",
}


def main() -> int:
    """Draw and return the exit code."""
    # Text as text and no random ids: the file is small and the same figures give the same bytes.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 10}
    draw(kept()).savefig(RESULTS / "sweep.svg", metadata={"Date": None})
    return 0


def draw(results: list[dict[str, Any]]) -> Figure:
    """Return the figure: tokens a second, and the time to the first token, against streams."""
    loads = [load for found in results for load in found["loads"]]
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    rate, first = figure.subplots(1, 2)
    for label, colour in COLOURS.items():
        own = sorted((load for load in loads if load["label"] == label), key=lambda load: load["streams"])
        if not own:
            continue
        streams = [load["streams"] for load in own]
        rate.plot(
            streams,
            [load["client"]["tokens_per_second"] for load in own],
            color=colour,
            marker="o",
            markersize=4,
            label=label,
        )
        timed = [load for load in own if load["client"]["ttft_ms"]]
        first.plot(
            [load["streams"] for load in timed],
            [load["client"]["ttft_ms"]["p50"] for load in timed],
            color=colour,
            marker="o",
            markersize=4,
        )
    _dress(rate, "output tokens a second")
    _dress(first, "time to the first token, ms p50")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(_title(results[0]), x=0.01, ha="left", fontsize=10)
    return figure


def _title(found: dict[str, Any]) -> str:
    hardware = found["hardware"]
    gpu = hardware["gpu"]["name"] if hardware["gpu"] else hardware["cpu"]
    return (
        f"ERNIE-4.5-0.3B's shape, vLLM {found['versions'].get('vllm')}, {gpu}, {hardware['cores']} cores; "
        f"{found['taken_at'].partition('T')[0]}"
    )


def _dress(axes: Axes, name: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(STREAMS, [str(number) for number in STREAMS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("streams at a time")
    axes.set_ylabel(f"{name} (logarithmic)")
    axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
