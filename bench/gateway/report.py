"""A result as tables for people; `python -m bench.gateway.report` puts the newest kept one into bench/README.md."""

import sys
from typing import Any

from bench.gateway import result
from bench.gateway.processes import ROOT

README = ROOT / "bench" / "README.md"
BEGIN, END = "<!-- result: begin -->", "<!-- result: end -->"
# Issue 3: an event is forwarded in less, at the median, on an idle machine.
BAR_US = 1000
_STREAMS = "streams"
# Kept waiting for its core for longer, the gateway shared the machine with somebody.
_IDLE_BELOW_SHARE = 0.02
# A path that carries less than this share of the offered events is full: its times are those of a queue.
_FULL_BELOW_SHARE = 0.95


def markdown(found: dict[str, Any]) -> str:
    """Return the head and the tables of a result."""
    scenarios = found["scenarios"]
    streams = [scenario for scenario in scenarios if scenario["name"] == _STREAMS]
    requests = [scenario for scenario in scenarios if scenario["name"] != _STREAMS]
    return "\n\n".join([_head(found), _stream_table(streams), _verdict(streams), _request_table(requests)])


def _head(found: dict[str, Any]) -> str:
    hardware = found["hardware"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    modified = " with changes not committed" if found["gateway_modified"] else ""
    loads = " and ".join(f"{found[f'load_average_{when}'][0]:.2f}" for when in ("before", "after"))
    return (
        f"Taken {found['taken_at']} by `{found['command']}`: gateway {found['gateway_commit']}{modified}; "
        f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, {found['system']}; {versions}. "
        f"Medians of {found['rounds']} rounds. Load average before and after: {loads}."
    )


def _stream_table(streams: list[dict[str, Any]]) -> str:
    rows = [
        [
            str(scenario["clients"]),
            f"{scenario['gap_ms']} ms",
            _times(direct["forward_us"]),
            _times(gateway["forward_us"]),
            f"**{_added(scenario):.0f}**",
            f"{gateway['forward_us']['p50'] / direct['forward_us']['p50']:.1f}",
            f"{_ms(direct['first_token_us'])} · {_ms(gateway['first_token_us'])}",
            f"{gateway['events_per_second']:,.0f} of {scenario['offered_events_per_second']:,.0f}",
            f"{gateway['gateway_cpu_us_per_event']:.0f}",
            f"{gateway['cpu_share']['gateway']:.0%}",
            f"{gateway['gateway_waiting_share']:.1%}",
        ]
        for scenario, direct, gateway in _by_path(streams)
    ]
    heads = (
        "streams",
        "events every",
        "direct, µs p50 / p90 / p99",
        "gateway, µs p50 / p90 / p99",
        "to forward an event, µs",
        "ratio",
        "first token, ms: direct · gateway",
        "events/s",
        "gateway CPU, µs an event",
        "its share of a core",
        "kept waiting for it",
    )
    return _table(heads, rows)


def _verdict(streams: list[dict[str, Any]]) -> str:
    """Say where the bar is met, and where a path is full."""
    passed = [_named(scenario) for scenario in streams if _added(scenario) < BAR_US]
    missed = [_named(scenario) + _fullness(scenario) for scenario in streams if _added(scenario) >= BAR_US]
    return (
        f"Under {BAR_US / 1000:.0f} ms at the median: {'; '.join(passed) or 'nowhere'}. "
        f"Not: {'; '.join(missed) or 'none'}.{_caution(streams)}"
    )


def _caution(streams: list[dict[str, Any]]) -> str:
    waited = max(scenario["paths"]["gateway"]["median"]["gateway_waiting_share"] for scenario in streams)
    if waited < _IDLE_BELOW_SHARE:
        return ""
    return (
        f" **The machine was not idle**: others had the gateway's core for up to {waited:.0%} of the time. "
        "These times are too long: what passed holds, what missed is open."
    )


def _named(scenario: dict[str, Any]) -> str:
    clients = scenario["clients"]
    return f"{clients} {'stream' if clients == 1 else 'streams'} at {scenario['gap_ms']} ms"


def _fullness(scenario: dict[str, Any]) -> str:
    carried = scenario["paths"]["gateway"]["median"]["events_per_second"] / scenario["offered_events_per_second"]
    return f" ({carried:.0%} of the events carried)" if carried < _FULL_BELOW_SHARE else ""


def _request_table(requests: list[dict[str, Any]]) -> str:
    rows = [
        [
            scenario["name"],
            str(scenario["clients"]),
            _times(direct["answer_us"]),
            _times(gateway["answer_us"]),
            f"{direct['answers_per_second']:,.0f}",
            f"**{gateway['answers_per_second']:,.0f}**",
            f"{gateway['gateway_cpu_us_per_answer']:.0f}",
            f"{gateway['gateway_waiting_share']:.1%}",
        ]
        for scenario, direct, gateway in _by_path(requests)
    ]
    heads = (
        "until",
        "clients",
        "direct, µs p50 / p90 / p99",
        "gateway, µs p50 / p90 / p99",
        "direct, answers/s",
        "gateway, answers/s",
        "gateway CPU, µs an answer",
        "kept waiting for it",
    )
    return _table(heads, rows)


def _by_path(scenarios: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    return [
        (scenario, scenario["paths"]["direct"]["median"], scenario["paths"]["gateway"]["median"])
        for scenario in scenarios
    ]


def _added(scenario: dict[str, Any]) -> float:
    """Return the time to forward an event: what the gateway adds to the median, in microseconds."""
    direct, gateway = (scenario["paths"][path]["median"]["forward_us"]["p50"] for path in ("direct", "gateway"))
    return float(gateway - direct)


def _times(figures: dict[str, float]) -> str:
    return " / ".join(f"{figures[name]:,.0f}" for name in ("p50", "p90", "p99"))


def _ms(figures: dict[str, float] | None) -> str:
    return f"{figures['p50'] / 1000:.2f}" if figures else "-"


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> int:
    """Replace what stands between the marks."""
    path = result.latest()
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    plot = f"![Time on the way against streams](gateway/results/{path.stem}.svg)"
    shown = f"{markdown(result.read(path))}\n\n{plot}"
    README.write_text(f"{before}{BEGIN}\n{shown}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
