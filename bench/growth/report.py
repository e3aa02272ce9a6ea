"""A result as tables for people; `python -m bench.growth.report` puts the newest kept one into README.md beside it."""

import sys
from pathlib import Path
from typing import Any

from bench.peers import result
from bench.peers.report import renew, table

README, RESULTS = Path(__file__).parent / "README.md", Path(__file__).parent / "results"
_KIB = 1024
# What a gateway grows by in its first requests is not growth.
_WARM_SHARE = 0.1


def markdown(found: dict[str, Any]) -> str:
    """Return the head and the tables of a result, as far as it has them."""
    parts = [_head(found)]
    if "streams" in found:
        parts.append(_streams(found["streams"]))
    if "prompts" in found:
        parts.append(_prompts(found["prompts"]))
    if "requests" in found:
        parts.append(_requests(found["requests"]))
    return "\n\n".join(parts)


def _head(found: dict[str, Any]) -> str:
    hardware = found["hardware"]
    loads = ", ".join(f"{load:.2f}" for load in found["load_averages"])
    modified = " with changes not committed" if found["gateway_modified"] else ""
    return (
        f"Taken {found['taken_at']} by `{found['command']}`: gateway {found['gateway_commit']}{modified}; "
        f"{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, {found['system']}. "
        f"Medians of {found['rounds']} rounds. Load average before, and after each part: {loads}."
    )


def _streams(steps: list[dict[str, Any]]) -> str:
    heads = (
        "streams",
        "events/s",
        "first token ms p50 / p99",
        "CPU µs an event",
        "share of a core",
        "MiB before · at most",
        "KiB a stream",
    )
    rows = []
    for step in steps:
        middle = step["median"]
        rows.append(
            [
                f"{step['streams']:,}",
                f"{middle['events_per_second']:,.0f} of {step['offered_events_per_second']:,.0f}",
                _times(middle["first_token_ms"]),
                _number(middle["cpu_us_per_event"], ".0f"),
                f"{middle['cpu_share']['system']:.0%}",
                _memory(middle),
                f"{added_kib(middle) / step['streams']:.0f}",
            ]
        )
    return table(heads, rows)


def _prompts(steps: list[dict[str, Any]]) -> str:
    heads = (
        "prompt, KB",
        "requests/s, 4 clients",
        "ms p50 / p99",
        "CPU µs a request",
        "CPU µs a KB",
        "MiB before · at most",
        "KiB a client",
    )
    rows = []
    for step in steps:
        middle, kb = step["median"], step["prompt_bytes"] / 1000
        rows.append(
            [
                f"{kb:,.0f}",
                f"{middle['answers_per_second']:,.0f}",
                _times(middle["answer_ms"]),
                _number(middle["cpu_us_per_answer"], ",.0f"),
                _number(middle["cpu_us_per_answer"], ".1f", kb),
                _memory(middle),
                f"{added_kib(middle) / 4:,.0f}",
            ]
        )
    return table(heads, rows)


def _requests(found: dict[str, Any]) -> str:
    looks = found["looks"]
    warm = next(look for look in looks if look["requests"] >= _WARM_SHARE * looks[-1]["requests"])
    return (
        f"Memory of one gateway over {looks[-1]['requests']:,} requests, {found['unsound']} of them not answered "
        "soundly: "
        f"{looks[0]['memory_mib']:.1f} MiB before, {warm['memory_mib']:.1f} MiB after {warm['requests']:,}, "
        f"{looks[-1]['memory_mib']:.1f} MiB at the end; "
        f"{max(look['memory_mib'] for look in looks):.1f} MiB at most."
    )


def added_kib(figures: dict[str, Any]) -> float:
    """Return what a window has added to the memory at most."""
    return float(figures["memory_most_mib"] - figures["memory_before_mib"]) * _KIB


def _number(value: float | None, form: str, divisor: float = 1.0) -> str:
    """Return a figure; "-" if nothing came in the window."""
    return "-" if value is None else format(value / divisor, form)


def _memory(figures: dict[str, Any]) -> str:
    return f"{figures['memory_before_mib']:.1f} · {figures['memory_most_mib']:.1f}"


def _times(times: dict[str, float] | None) -> str:
    return f"{times['p50']:.2f} / {times['p99']:.2f}" if times else "-"


def main() -> int:
    """Renew the page with the latest result."""
    path = result.latest(RESULTS)
    plot = f"![CPU time and memory as the work grows](results/{path.stem}.svg)"
    renew(README, markdown(result.read(path)), plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
