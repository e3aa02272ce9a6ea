"""Faults of the whole engine: a name, what the engine does, and what the contract says of the gateway meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.fakes.events import event
from tests.fakes.lab.sees import DONE, WHOLE, Sees, broken, refused
from tests.fakes.peer import DeafPort, Peer, reset_at_once, say_nothing, write
from tests.fakes.scripts import Script, hold, refusing, saying

if TYPE_CHECKING:
    from tests.fakes.lab.engine import FaultEngine

SOUND = "sound"
SLOW_HEALTH_SECONDS = 5.0
# The gateway waits 2 s for one /health before it draws a conclusion.
SLOW_HEALTH_WATCH_SECONDS = 3.2
WATCH_SECONDS = 1.6


class Occupant(Protocol):
    """What listens on the engine's port in its place."""

    async def start(self) -> None:
        """Take the port."""

    async def stop(self) -> None:
        """Give it back."""


NOT_READY = refused(503, "not_ready")
CUT = broken("upstream_broken")
TIMED_OUT = broken("upstream_timeout")

Enter = Callable[["FaultEngine"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Mode:
    """A fault of the whole engine.

    `states`: where the gateway sees the engine after a while, with `waits_for` as part of the reason it gives.
    `whole`, `streamed`: what new requests see then; `caught`: what a stream sees that was open before, None if it is
    not touched. `proved_again`: whether warm-up generations must run. `keeps_traffic_seconds`: for how long it is
    watched that the engine stays in rotation; longer than it takes to call one stalled.
    """

    name: str
    engine_does: str
    enter: Enter
    states: tuple[str, ...]
    waits_for: str = ""
    whole: Sees = NOT_READY
    caught: Sees | None = None
    proved_again: bool = False
    keeps_traffic_seconds: float = 0.0

    @property
    def streamed(self) -> Sees:
        """As `whole`; a stream that has waited in the waiting room has had comments, so that its status is out."""
        return DONE if self.whole == WHOLE else broken("not_ready")


async def _sound(_engine: FaultEngine) -> None:
    pass


async def _hang(engine: FaultEngine) -> None:
    # What hangs notices no abort either: its gauges stand still like everything else.
    engine.fixed_running = 1
    engine.every_script = engine.trial_script = hold


async def _kill(engine: FaultEngine) -> None:
    await engine.stop()


async def _restart(engine: FaultEngine) -> None:
    engine.restart()


async def _deny_health(engine: FaultEngine) -> None:
    engine.health_status = 503


async def _slow_health(engine: FaultEngine) -> None:
    engine.health_delay_seconds = SLOW_HEALTH_SECONDS


async def _lose_models(engine: FaultEngine) -> None:
    engine.models = []
    engine.restart()


async def _lie(engine: FaultEngine) -> None:
    engine.every_script = engine.trial_script = refusing(503)
    engine.restart()


async def _fill(engine: FaultEngine) -> None:
    engine.fixed_running, engine.waiting, engine.tokens_per_look = 8, 40, 5
    # A probe would be left unanswered: only the moving counters speak for it.
    engine.trial_script = hold


async def _freeze_counters(engine: FaultEngine) -> None:
    engine.fixed_running = 8


def _port(occupant: Callable[[int, str], Occupant]) -> Enter:
    async def enter(engine: FaultEngine) -> None:
        await engine.give_port_to(occupant(engine.port, engine.server.host))

    return enter


def _warm_up(script: Script) -> Enter:
    async def enter(engine: FaultEngine) -> None:
        engine.trial_script = script
        engine.restart()

    return enter


STOP = event(finish_reason="stop")
LENGTH = event(finish_reason="length")

# By the words with which the gateway must name the fault.
UNSOUND: dict[str, tuple[str, str, Script]] = {
    "empty": ("warm-up-empty", "generates nothing", saying(STOP)),
    "U+FFFD": ("warm-up-broken-characters", "generates broken characters", saying(event("a\ufffdb"), STOP)),
    "special tokens": (
        "warm-up-special-tokens",
        "lets special tokens through",
        saying(event("Hi<|end_of_sentence|>"), STOP),
    ),
    "repeated itself": ("warm-up-repetition", "repeats itself without end", saying(event("ha" * 40), LENGTH)),
    "without a finish reason": ("warm-up-no-finish-reason", "stops for no reason", saying(event("Hi"))),
    "no chat completion": ("warm-up-no-completion", "sends events of another kind", saying(b"data: {}\n\n")),
    "error of the engine's own": (
        "warm-up-error",
        "sends an error event",
        saying(b'data: {"error":{"message":"x"}}\n\n'),
    ),
}

_ALL = (
    Mode(SOUND, "answers soundly; a request's model names a fault of one answer", _sound, ("ready",), whole=WHOLE),
    Mode("hung", "hangs with /health still 200", _hang, ("stalled",), "nothing moves", caught=TIMED_OUT),
    Mode("killed", "is gone: its port refuses", _kill, ("unreachable",), "accept connections", caught=CUT),
    Mode("restarted", "was restarted between two looks", _restart, ("ready",), whole=WHOLE, proved_again=True),
    Mode("health-503", "says itself that it is dead", _deny_health, ("loading",), "it answers 503"),
    Mode(
        "health-slow",
        "takes 5 s for /health, but works",
        _slow_health,
        ("ready",),
        whole=WHOLE,
        keeps_traffic_seconds=SLOW_HEALTH_WATCH_SECONDS,
    ),
    Mode("models-missing", "lists no model yet", _lose_models, ("loading",), "a model in /v1/models"),
    Mode("health-lies", "is healthy, but refuses every generation", _lie, ("warming",), "status 503"),
    Mode(
        "full",
        "is full, and works: requests queue up in it",
        _fill,
        ("busy",),
        "own queue",
        whole=WHOLE,
        keeps_traffic_seconds=WATCH_SECONDS,
    ),
    Mode(
        "counters-still",
        "answers, but its counters stand still",
        _freeze_counters,
        ("ready",),
        whole=WHOLE,
        keeps_traffic_seconds=WATCH_SECONDS,
    ),
    Mode(
        "port-deaf",
        "never accepts a connection",
        _port(DeafPort),
        ("unreachable",),
        "accept connections",
        caught=CUT,
    ),
    Mode(
        "port-mute",
        "accepts connections and says nothing",
        _port(lambda port, host: Peer(say_nothing, port, host)),
        ("unreachable", "stalled"),
        caught=CUT,
    ),
    Mode(
        "port-resets",
        "resets every connection",
        _port(lambda port, host: Peer(reset_at_once, port, host)),
        ("unreachable",),
        caught=CUT,
    ),
    Mode(
        "port-garbage",
        "speaks something that is no HTTP",
        _port(lambda port, host: Peer(write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), port, host)),
        ("unreachable",),
        caught=CUT,
    ),
    *(
        Mode(name, f"is restarted and {does}", _warm_up(script), ("warming",), words)
        for words, (name, does, script) in UNSOUND.items()
    ),
)
MODES = {mode.name: mode for mode in _ALL}
