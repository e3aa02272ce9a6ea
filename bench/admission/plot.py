"""`python -m bench.admission.plot`: draw the flood test from results/fairness.json; needs bench/requirements.txt."""

import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
LOADS = ("each at its share", "each at half of its share")
BARS = (("off", False), ("off", True), ("figures", False), ("figures", True))
NAMES = {"off": "first come,\nfirst served", "figures": "fair queue"}
# Who has had no first token has waited longer than the measurement took.
MEASURED_MS = 12_000
COLOURS = {False: "#6b7280", True: "#1d4ed8"}


def main() -> None:
    """Draw it beside the figures."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "bench", "font.family": "sans-serif", "font.size": 10}
    rows = json.loads((RESULTS / "fairness.json").read_text(encoding="utf-8"))
    draw(rows).savefig(RESULTS / "flood.svg", metadata={"Date": None})


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Return the figure: first-token times of nine polite clients, without and with the flood."""
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    for axes, load in zip(figure.subplots(1, 2, sharey=True), LOADS, strict=True):
        for place, (policy, flood) in enumerate(BARS):
            found = [row["polite_first_token_ms"] for row in rows if _is(row, load, policy, flood=flood)]
            is_known = None not in found
            height = statistics.median(found) if is_known else MEASURED_MS
            axes.bar(place, height, color=COLOURS[flood], width=0.7)
            text = f"{height:,.0f}" if is_known else f"> {height:,.0f}"
            axes.annotate(text, (place, height), (0, 2), textcoords="offset points", ha="center")
        axes.set_yscale("log")
        axes.set_xticks([0.5, 2.5], [NAMES["off"], NAMES["figures"]])
        axes.set_title(load, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.15)
    figure.axes[0].set_ylabel("median first token of nine, ms")
    figure.legend(
        handles=[mpl.patches.Patch(color=COLOURS[flood]) for flood in (False, True)],
        labels=["all alike", "the tenth asks 50 times as much"],
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )
    return figure


def _is(row: dict[str, Any], load: str, policy: str, *, flood: bool) -> bool:
    return (row["load"], row["policy"], row["flood"]) == (load, policy, flood)


if __name__ == "__main__":
    main()
