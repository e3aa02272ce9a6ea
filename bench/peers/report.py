"""A result as tables for people; `python -m bench.peers.report` puts the newest kept one into README.md beside it."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.gateway.scenarios import Scenario
from bench.peers import result

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- result: begin -->", "<!-- result: end -->"
# Engine and load have one core together: above this share of it they may be what limits.
_RIG_IS_FULL = 0.95

Entry = dict[str, Any]


def line(scenario: Scenario, figures: dict[str, Any]) -> str:
    """Return one window in a line, to watch a run by."""
    fault = f", {figures['first_fault']}" if figures["first_fault"] else ""
    share = figures["cpu_share"]
    return (
        f"{result.key_of(scenario)}: {figures['answers_per_second']:,.0f} answers/s, "
        f"{figures['events_per_second']:,.0f} events/s, {_percent(figures['clean_share'])} clean{fault}; "
        f"of a core: system {share['system']:.0%}, engine {share['engine']:.0%}, load {share['load']:.0%}"
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the head and the tables of a result."""
    systems = found["systems"]
    parts = [_head(found), _requests(systems), _streams(found), _memory(systems), _missing(found)]
    return "\n\n".join(part for part in parts if part)


def _head(found: dict[str, Any]) -> str:
    hardware = found["hardware"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    modified = " with changes not committed" if found["gateway_modified"] else ""
    loads = ", ".join(f"{load:.2f}" for load in found["load_averages"])
    return (
        f"Taken {found['taken_at']} by `{found['command']}`: gateway {found['gateway_commit']}{modified}; "
        f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, {found['system']}; {versions}. "
        f"Medians of {found['rounds']} rounds, in brackets the least and the most. "
        f"Load average before, and after each round: {loads}."
    )


def _requests(systems: list[Entry]) -> str:
    clients = (1, 16, 64)
    heads = [
        "system",
        *(f"requests/s, {number}" for number in clients),
        *(f"ms p50 / p99, {number}" for number in clients),
        "CPU µs a request, 16",
        "sound",
    ]
    rows = [
        [
            _name(entry),
            *(_spread(entry, number, "answers_per_second") for number in _keys("whole answer", clients)),
            *(_times(entry, number, "answer_ms") for number in _keys("whole answer", clients)),
            _spread(entry, "whole answer 16", "cpu_us_per_answer"),
            _sound(entry, _keys("whole answer", clients)),
        ]
        for entry in systems
    ]
    return table(heads, rows)


def _streams(found: dict[str, Any]) -> str:
    clients = (1, 64, 256)
    offered = found["offered_events_per_second"]
    heads = [
        "system",
        *(f"first token ms p50 / p99, {number}" for number in clients),
        f"events/s, 64 (of {offered['streams 64']:,.0f})",
        f"events/s, 256 (of {offered['streams 256']:,.0f})",
        "CPU µs an event, 64",
        "CPU µs an event, 256",
        "clean streams, 1 · 64 · 256",
        "events/s, unpaced",
    ]
    rows = [
        [
            _name(entry),
            *(_times(entry, key, "first_token_ms") for key in _keys("streams", clients)),
            _spread(entry, "streams 64", "events_per_second"),
            _spread(entry, "streams 256", "events_per_second"),
            _spread(entry, "streams 64", "cpu_us_per_event"),
            _spread(entry, "streams 256", "cpu_us_per_event"),
            _sound(entry, _keys("streams", clients)),
            _spread(entry, "unpaced 16", "events_per_second"),
        ]
        for entry in found["systems"]
    ]
    return table(heads, rows)


def _memory(systems: list[Entry]) -> str:
    heads = ["system", "version", "what it is", "s to its first answer", "MiB before", "MiB after"]
    rows = [
        [
            _name(entry),
            entry["version"] or "-",
            entry["is_doing"],
            f"{entry['median']['start_seconds']:.1f}" if entry["median"]["memory_before_mib"] else "-",
            _whole(entry["median"]["memory_before_mib"]),
            _whole(entry["median"]["memory_after_mib"]),
        ]
        for entry in systems
    ]
    return table(heads, rows)


def _missing(found: dict[str, Any]) -> str:
    return "\n".join(f"- Not measured: {name}, {reason}." for name, reason in found["not_measured"].items())


def _keys(name: str, clients: Sequence[int]) -> list[str]:
    return [f"{name} {number}" for number in clients]


def _name(entry: Entry) -> str:
    return f"**{entry['name']}**" if entry["name"] == "gateway" else entry["name"]


def _spread(entry: Entry, scenario: str, figure: str) -> str:
    """Return a figure's median with its extremes; a star where the rig itself was full."""
    middle, least, most = (entry[which]["scenarios"][scenario] for which in ("median", "least", "most"))
    if middle[figure] is None or not middle["answers_per_second"]:
        return "-"
    if figure.startswith("cpu_") and not middle[figure]:
        return "-"
    star = "\\*" if middle["cpu_share"]["engine"] + middle["cpu_share"]["load"] > _RIG_IS_FULL else ""
    return f"{_number(middle[figure])}{star} ({_number(least[figure])} to {_number(most[figure])})"


def _times(entry: Entry, scenario: str, figure: str) -> str:
    times = entry["median"]["scenarios"][scenario][figure]
    return f"{_short(times['p50'])} / {_short(times['p99'])}" if times else "-"


def _sound(entry: Entry, scenarios: Iterable[str]) -> str:
    """Return the worst round's share of clean answers; one for all where they are the same."""
    shares = [_percent(entry["least"]["scenarios"][key]["clean_share"]) for key in scenarios]
    return shares[0] if len(set(shares)) == 1 else " · ".join(shares)


def _percent(share: float | None) -> str:
    """Return a share so that only what is whole is called 100 %."""
    if share is None:
        return "-"
    return f"{min(share * 100, 99.9):.1f} %" if share < 1 else "100 %"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004  (two digits are enough)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"  # noqa: PLR2004  (three digits are enough)


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def renew(readme: Path, text: str, plot: str) -> None:
    """Replace what stands between the marks of a page."""
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{text}\n\n{plot}\n{END}{after}")


def main() -> int:
    """Renew the page with the latest result."""
    path = result.latest()
    plot = f"![Requests, events and CPU time beside the rivals](results/{path.stem}.svg)"
    renew(README, markdown(result.read(path)), plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
