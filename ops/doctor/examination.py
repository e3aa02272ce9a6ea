"""Looks at everything once: what each source says, and whether the stack answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from docker.errors import DockerException

from ops.card import Card, read_cards, read_programs
from ops.containers import Containers
from ops.docker_engine import docker_engine
from ops.doctor import answer, configuration, probes
from ops.doctor.age import ages_of
from ops.doctor.diagnosis import Ages, Evidence, Finding, diagnose
from ops.doctor.redaction import Redactor
from ops.doctor.signature import LOGS, Source
from ops.doctor.signatures import ALL
from ops.errors import StackError
from ops.processes import Processes
from ops.settings import Settings
from ops.supervision import Layout
from ops.up import address, running_ways
from ops.way import SERVICES, ServiceState, StackWay

ASK_TIMEOUT_SECONDS = 10
LOG_LINES = 2000
OTHERS_HOLD_GB = 1.0
_GB = 1e9
BEFORE_WEIGHTS = ("checking", "downloading")
_FIGURES = ("gateway_edge_disagreement", "gateway_state_degraded")


@dataclass(frozen=True)
class Examination:
    """What was seen, without secrets; whether the stack answers; what that shows; and what is unwell."""

    evidence: Evidence
    answers: bool
    findings: Sequence[Finding]
    unwell: Sequence[str]

    @property
    def is_well(self) -> bool:
        """Nothing known is wrong now, and the stack answers."""
        return self.answers and all(finding.is_past for finding in self.findings)


def examine(root: Path, environ: Mapping[str, str] | None = None) -> Examination:
    """Look at the settings, this host, the card, and whatever runs. Changes nothing; takes some seconds."""
    settings, wrong = configuration.read_settings(root, environ)
    ways = running_ways(settings)
    way = ways[0] if ways else None
    states = _states(way) if way else {}
    answers, said = answer.ask(address(settings), settings.api_key) if way else (False, [])
    evidence: dict[Source, list[str]] = {
        Source.SETTINGS: [*wrong, *configuration.show(settings)],
        Source.HOST: list(_host(settings, ways, answers=answers)),
        Source.CARD: list(_card_lines(*read_cards(), others_bytes=_others_bytes(way))),
        Source.KERNEL: probes.read_kernel(),
        Source.DOCKER: list(_docker(settings, way)),
        Source.STATES: [*(_summary(states)), *(way.notes() if way else [])],
        Source.ANSWER: said,
        Source.READINESS: list(_readiness(way)) if way else [],
    }
    # Without a running way the last run's own logs are looked at: natively they stay.
    reader = way or _last_way(settings)
    for service in SERVICES:
        evidence[Source(service)] = list(reader.last_words(service, LOG_LINES)) if reader else []
    if reader and not answers:
        evidence[Source.LAST_WORDS] = list(reader.launcher("last-words"))
    ages = _ages(evidence, states, way)
    redactor = Redactor(settings.environment)
    shown = {source: [redactor.clean(line) for line in lines] for source, lines in evidence.items()}
    unwell = [service for service in SERVICES if not states.get(service, ServiceState("")).healthy]
    return Examination(shown, answers, diagnose(shown, ALL, answers=answers, ages=ages), unwell)


def _ages(evidence: Evidence, states: Mapping[str, ServiceState], way: StackWay | None) -> Ages:
    """Return how old the lines of all that is kept are. Without a running way nobody is left whose end explains it."""
    now = datetime.now(UTC)
    works = {service: way is None or states.get(service, ServiceState("")).healthy for service in SERVICES}
    # Containers live in UTC.
    clock = UTC if way and way.is_docker else None
    return {
        **{one: ages_of(evidence[one], now, clock, goes_on=works[one.value]) for one in LOGS},
        Source.LAST_WORDS: ages_of(evidence.get(Source.LAST_WORDS, ()), now, clock, goes_on=works["vllm"]),
        Source.KERNEL: ages_of(evidence[Source.KERNEL], now, None, goes_on=True),
    }


def _last_way(settings: Settings) -> StackWay | None:
    return Processes(settings) if (settings.run_dir / "logs").is_dir() else None


def _states(way: StackWay) -> dict[str, ServiceState]:
    try:
        return way.states()
    except StackError:
        # Compose gave up; what it said is evidence of its own.
        return {}


def _summary(states: Mapping[str, ServiceState]) -> Iterator[str]:
    up = [service for service, state in states.items() if state.healthy]
    down = [service for service in SERVICES if service not in up]
    if not states:
        yield "nothing runs"
    elif up and down:
        yield f"half of the stack runs: {', '.join(up)} up, {', '.join(down)} down"
    yield from (f"{service} is {state.word}" for service, state in states.items())


def _host(settings: Settings, ways: Sequence[StackWay], *, answers: bool) -> Iterator[str]:
    yield from probes.describe_host()
    if len(ways) > 1:
        yield f"two stacks run: {' and '.join(way.name for way in ways)}"
    if not ways:
        native = settings.way == "native" or not probes.has_docker()
        ports = Layout.of(settings).ports if native else {"NGINX_HTTP_PORT": settings.http_port}
        yield from probes.probe_ports(ports)
    yield from probes.probe_disk(settings.root)
    yield from probes.probe_memory()
    if not answers and _may_need_hub(settings, ways):
        yield from probes.probe_hub(settings)


def _may_need_hub(settings: Settings, ways: Sequence[StackWay]) -> bool:
    """Whether the weights may still have to come: an engine that starts already has them."""
    if settings.environment.get("ENGINE_OFFLINE", "off") == "on" or settings.model.startswith(("/", ".")):
        return False
    stages = [stage.name for way in ways if (stage := way.stage())]
    return settings.model != "demo" and all(name in BEFORE_WEIGHTS for name in stages)


def _docker(settings: Settings, way: StackWay | None) -> Iterator[str]:
    if settings.way != "native" and probes.has_docker() and (way is None or way.is_docker):
        try:
            with docker_engine(ASK_TIMEOUT_SECONDS):
                pass
        except (DockerException, OSError) as error:
            yield str(error)
    yield from Containers(settings, gpu=True).said()


def _card_lines(cards: Sequence[Card], complaint: str, *, others_bytes: int) -> Iterator[str]:
    if complaint:
        yield complaint
    for card in cards:
        index = card.index
        yield (
            f"card {index}: {card.name}, driver {card.driver}, {card.used_bytes / _GB:.1f} of"
            f" {card.total_bytes / _GB:.1f} GB used, {card.use_percent} %, {card.heat_celsius} C, {card.power_watts} W"
        )
        if card.is_slowed_by_heat:
            yield f"card {index} is slowed down by heat ({card.heat_celsius} C)"
        if card.uncorrected_errors:
            yield f"card {index} has {card.uncorrected_errors} uncorrected memory errors"
        if card.row_waits:
            yield f"card {index}: a bad memory row waits for a reset"
        if card.row_failed:
            yield f"card {index}: a bad memory row could not be replaced"
    if cards and others_bytes / _GB > OTHERS_HOLD_GB:
        yield f"card {cards[0].index}: other programs hold {others_bytes / _GB:.1f} GB"


def _others_bytes(way: StackWay | None) -> int:
    """Only while no engine runs here are all programs on the card others."""
    return sum(program.bytes for program in read_programs()) if way is None else 0


def _readiness(way: StackWay) -> Iterator[str]:
    report = way.fetch("gateway", "/readyz?verbose")
    try:
        engines = json.loads(report or "{}").get("engines", [])
        for engine in engines:
            yield f"engine {engine['engine']} is {engine['state']}, waits for {engine['waits_for'] or 'nothing'}"
    except (ValueError, LookupError, TypeError, AttributeError):
        yield "the gateway's report cannot be read"
    for line in (way.fetch("gateway", "/metrics") or "").splitlines():
        if line.startswith(_FIGURES):
            yield line
