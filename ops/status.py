"""`make status`: what runs, how far it is, its versions, the card, and how fast tokens come."""

import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ops.card import Card, read_cards
from ops.errors import StackError
from ops.figures import total
from ops.settings import Settings
from ops.stage import Stage
from ops.up import address, running_ways
from ops.way import ServiceState, StackWay, Usage

RATE_SECONDS = 1.0
WATCH_SECONDS = 2.0


@dataclass(frozen=True)
class Figures:
    """The gateway's own counts at one moment."""

    at: float
    tokens: float
    in_flight: float
    waiting: float
    is_ready: bool


@dataclass(frozen=True)
class Status:
    """All of it; `tokens_per_second` is None while there is nothing to compare with."""

    way: str
    url: str
    is_ready: bool
    states: Mapping[str, ServiceState]
    usage: Mapping[str, Usage]
    stage: Stage | None
    models: Sequence[str]
    versions: Mapping[str, str]
    in_flight: int
    waiting: int
    tokens_per_second: float | None
    cards: Sequence[Card] = field(default_factory=tuple)

    def as_json(self) -> str:
        """Return it for scripts."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)


class Watcher:
    """Looks again and again; the rate is that since the look before."""

    def __init__(self, settings: Settings, way: StackWay) -> None:
        self._settings, self._way = settings, way
        self._before: Figures | None = None

    def look(self) -> Status:
        """Return the status now."""
        now = _figures(self._way)
        before, self._before = self._before, now
        rate = None if before is None or now is None else (now.tokens - before.tokens) / max(now.at - before.at, 0.001)
        models = _models(self._way)
        return Status(
            way=self._way.name,
            url=address(self._settings),
            is_ready=bool(now and now.is_ready),
            states=self._way.states(),
            usage=self._way.usage(),
            stage=self._way.stage(),
            models=models,
            versions=_versions(self._settings.root, self._way),
            in_flight=int(now.in_flight) if now else 0,
            waiting=int(now.waiting) if now else 0,
            tokens_per_second=None if rate is None else round(max(rate, 0.0), 1),
            cards=read_cards()[0],
        )


def show_status(settings: Settings, console: Console, *, watch: bool, as_json: bool) -> bool:
    """Show the status once, or on and on until Ctrl-C; return whether the stack is ready."""
    ways = running_ways(settings)
    if not ways:
        if as_json:
            console.print_json(json.dumps({"way": None, "is_ready": False}))
        else:
            console.print("Nothing is running. Start with: make up")
        return False
    watcher = Watcher(settings, ways[0])
    status = watcher.look()
    if watch:
        with Live(_render(status), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                try:
                    status = watcher.look()
                except StackError as error:
                    live.update(Text(str(error)), refresh=True)
                    return False
                live.update(_render(status), refresh=True)
    time.sleep(RATE_SECONDS)
    status = watcher.look()
    if as_json:
        console.out(status.as_json(), highlight=False)
    else:
        console.print(_render(status))
    return status.is_ready


def _render(status: Status) -> RenderableType:
    table = Table("service", "state", "memory", "threads", "handles", box=None, pad_edge=False)
    for service, state in status.states.items():
        usage = status.usage.get(service)
        held = (f"{usage.memory_bytes / 1e6:.0f} MB", str(usage.threads), str(usage.handles)) if usage else ("", "", "")
        table.add_row(service, Text(state.word, style="green" if state.healthy else "yellow"), *held)
    rate = "…" if status.tokens_per_second is None else f"{status.tokens_per_second:.1f}"
    lines = [
        f"{status.url} is {'' if status.is_ready else 'not '}ready: {', '.join(status.models) or 'no model yet'}",
        f"{status.in_flight} requests run, {status.waiting} wait, {rate} tokens/s",
        ", ".join(f"{name} {version}" for name, version in status.versions.items()),
    ]
    if status.stage and status.stage.is_start:
        lines.insert(1, f"engine: {status.stage.words}")
    lines += [
        f"card {card.index} {card.name}: {card.used_bytes / 1e9:.1f} of {card.total_bytes / 1e9:.1f} GB,"
        f" {card.use_percent} %, {card.heat_celsius} °C, {card.power_watts} W"
        for card in status.cards
    ]
    return Group(Text(f"{status.way}:"), table, *(Text(line) for line in lines))


def _figures(way: StackWay) -> Figures | None:
    text = way.fetch("gateway", "/metrics")
    if not text:
        return None
    return Figures(
        at=time.monotonic(),
        tokens=total(text, "gateway_tokens_total", direction="completion"),
        in_flight=total(text, "gateway_requests_in_flight"),
        waiting=total(text, "gateway_queue_depth"),
        is_ready=total(text, "gateway_ready") > 0,
    )


def _models(way: StackWay) -> list[str]:
    try:
        engines = json.loads(way.fetch("gateway", "/readyz?verbose") or "{}").get("engines", [])
        return sorted({model for engine in engines for model in engine["models"]})
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def _versions(root: Path, way: StackWay) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = {"stack": str(project["version"])}
    try:
        versions["vLLM"] = str(json.loads(way.fetch("vllm", "/version") or "")["version"])
    except (ValueError, LookupError, TypeError):
        # The engine does not answer yet.
        return versions
    return versions
