"""`python -m bench.growth.plot`: draw the newest kept result beside it; needs bench/requirements.txt."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

RESULTS = Path(__file__).parent / "results"
COLOUR = "#1d4ed8"


def main() -> int:
    """Draw and return the exit code."""
    path = max(RESULTS.glob("*.json"))
    # Text as text and no random ids: the file is small and the same figures give the same bytes.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 9}
    draw(json.loads(path.read_text())).savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return 0


def draw(found: dict[str, Any]) -> Figure:
    """Return the figure: CPU time and memory against streams and prompts, memory over requests."""
    figure = Figure(figsize=(9.6, 4.8), layout="constrained")
    axes = figure.subplot_mosaic([["stream CPU", "prompt CPU", "requests"], ["stream MiB", "prompt MiB", "requests"]])
    at_streams = [step["streams"] for step in found["streams"]]
    at_prompts = [step["prompt_bytes"] / 1000 for step in found["prompts"]]
    for place, part, at, figure_name, title, below in (
        ("stream CPU", "streams", at_streams, "cpu_us_per_event", "CPU µs an event", "streams"),
        ("stream MiB", "streams", at_streams, "memory_most_mib", "MiB at most", "streams"),
        ("prompt CPU", "prompts", at_prompts, "cpu_us_per_answer", "CPU µs a request", "prompt, KB"),
        ("prompt MiB", "prompts", at_prompts, "memory_most_mib", "MiB at most", "prompt, KB"),
    ):
        _line(axes[place], at, [step["median"][figure_name] for step in found[part]], title, below)
    looks = found["requests"]["looks"]
    millions = [look["requests"] / 1e6 for look in looks]
    _line(axes["requests"], millions, [look["memory_mib"] for look in looks], "MiB", "million requests", is_log=False)
    figure.suptitle(
        f"The gateway on one core: {found['hardware']['cpu']}; {found['taken_at'].partition('T')[0]}, "
        f"gateway {found['gateway_commit']}",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


def _line(axes: Axes, at: list[float], values: list[float], title: str, below: str, *, is_log: bool = True) -> None:
    axes.plot(at, values, color=COLOUR, marker="o" if is_log else "", markersize=4, linewidth=1.6)
    if is_log:
        axes.set_xscale("log")
        axes.set_xticks(at, [f"{value:,.0f}" for value in at])
        axes.xaxis.set_minor_locator(NullLocator())
        for place, value in zip(at, values, strict=True):
            axes.annotate(f"{value:,.0f}", (place, value), (0, 5), textcoords="offset points", ha="center", fontsize=7)
    axes.set_ylim(0, 1.2 * max(values))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel(below)
    axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
