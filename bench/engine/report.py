"""Results as tables; `python -m bench.engine.report` puts the kept ones into README.md beside this file."""

import json
import sys
from pathlib import Path
from typing import Any

from bench.engine.result import RESULTS

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- result: begin -->", "<!-- result: end -->"
PLANS = ("first", "variants", "several", "mps", "mps-many")
# A client process that has used more of its core than this may have been the limit.
_BUSY_CLIENT = 0.8


def kept() -> list[dict[str, Any]]:
    """Return the kept results in the order of their plans."""
    paths = (RESULTS / f"sweep-{plan}.json" for plan in PLANS)
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def markdown(found: dict[str, Any]) -> str:
    """Return the head and the tables of a result."""
    parts = [_head(found), _loads(found["loads"]), _starts(found["starts"])]
    if "combined" in found:
        parts.insert(1, f"Combined: {', '.join(found['combined']['of']) or 'nothing, none gained 3 %'}.")
    if found["not_done"]:
        parts.append("Not done: " + "; ".join(f"{row['step']} ({row['reason']})" for row in found["not_done"]) + ".")
    return "\n\n".join(parts)


def _head(found: dict[str, Any]) -> str:
    hardware = found["hardware"]
    gpu = hardware["gpu"]
    card = f"{gpu['name']} ({gpu['memory_mib']:,} MiB, driver {gpu['driver']}); " if gpu else ""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"Taken {found['taken_at']} by `{found['command']}`: {card}{hardware['cpu']}, {hardware['cores']} cores, "
        f"{found['system']}; {versions}. Load: {found['load']}."
    )


def _loads(loads: list[dict[str, Any]]) -> str:
    heads = (
        "configuration",
        "streams",
        "tok/s, client · engine",
        "first token, ms p50 / p99",
        "gap, ms p50 / p99",
        "tokens a read",
        "CPU cores: engines · front ends · load",
        "busiest thread: engine · front end",
        "GPU busy · W",
        "failed",
    )
    order = list(dict.fromkeys(load["label"] for load in loads))
    ordered = sorted(loads, key=lambda load: (order.index(load["label"]), load["streams"]))
    return _table(heads, [_load(load) for load in ordered])


def _load(load: dict[str, Any]) -> list[str]:
    client, cpu, gpu = load["client"], load["cpu"], load["gpu"]
    mark = " (load full)" if client["busiest_process"] > _BUSY_CLIENT else ""
    engine = load["engine"]["tokens_per_second"]
    return [
        load["label"],
        f"{load['streams']:,}",
        f"**{client['tokens_per_second']:,.0f}** · {f'{engine:,.0f}' if engine else '-'}{mark}",
        _times(client["ttft_ms"]),
        _times(client["gap_ms"]),
        f"{client['tokens_per_read'] or 0:.2f}",
        f"{cpu['engine_cores']:.1f} · {cpu['front_end_cores']:.1f} · {client['cores']:.1f}",
        f"{cpu['busiest_engine_thread']:.0%} · {cpu['busiest_front_end_thread']:.0%}",
        f"{gpu['busy_percent']:.0f} % · {gpu['watts']:.0f}" if gpu else "-",
        str(sum(client["failures"].values()) + client["short_answers"]),
    ]


def _starts(starts: list[dict[str, Any]]) -> str:
    heads = (
        "engine",
        "flags",
        "at once",
        "healthy after, s",
        "compile, s",
        "graphs, s",
        "model, GiB",
        "graphs, GiB",
        "KV, tokens",
        "GPU memory of it, GB",
        "GPU memory in use, GB before · after",
    )
    return _table(heads, [_start(start) for start in starts])


def _start(start: dict[str, Any]) -> list[str]:
    stages = start["stages"]
    environment = [f"{name}={text}" for name, text in start["environment"].items()]
    before, after = start["gpu_used_gb_before"], start["gpu_used_gb_after"]
    return [
        f"{start['engine']} ({'Rust' if start['rust'] else 'Python'})",
        f"`{' '.join([*environment, *start['flags']])}`",
        str(start["started_together"]),
        _number(start["healthy_after_seconds"]) if start["healthy_after_seconds"] else "**failed**",
        _number(stages.get("compile_seconds")),
        _number(stages.get("graphs_seconds")),
        _number(stages.get("model_gib")),
        _number(stages.get("graphs_gib")),
        _number(stages.get("kv_tokens")),
        _number(start["gpu_used_gb_of_it"]),
        f"{_number(before)} · {_number(after)}",
    ]


def _times(figures: dict[str, float] | None) -> str:
    return f"{figures['p50']:,.4g} / {figures['p99']:,.4g}" if figures else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.10g}"


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> int:
    """Replace what stands between the marks."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    shown = [markdown(found) for found in kept()]
    plot = RESULTS / "sweep.svg"
    if plot.exists():
        shown.insert(0, "![Tokens a second and time to the first token against streams](results/sweep.svg)")
    contracts = [f"[{path.stem}](results/{path.name})" for path in sorted(RESULTS.glob("contract*.md"))]
    if contracts:
        shown.append(f"The Rust front end against the Python one, request by request: {', '.join(contracts)}.")
    text = "\n\n".join(shown)
    README.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
