"""The shapes that several modules share: one request's record, and what the probes report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast, get_args

from pydantic import BaseModel
from starlette.types import Scope

from gateway.errors import Outcome
from gateway.rates import Allowance

Route = Literal[
    "chat_completions", "completions", "tokenize", "models", "livez", "readyz", "metrics", "status", "other"
]
ROUTES: tuple[Route, ...] = get_args(Route)
RELAYED_ROUTES: frozenset[Route] = frozenset({"chat_completions", "completions"})
# The launcher's words for how far an engine has come, in this order.
StageName = Literal[
    "checking",
    "downloading",
    "waiting",
    "starting",
    "loading",
    "compiling",
    "capturing",
    "warming",
    "serving",
    "stopping",
    "ended",
]
STAGES: tuple[StageName, ...] = get_args(StageName)


@dataclass(slots=True)
class Client:
    """Who asks, by what it is counted (an address, a /64 or `key:NAME`), and how much it may ask for."""

    name: str
    allowance: Allowance


class Trace(Protocol):
    """One request's trace, for whoever serves it."""

    def call_engine(self, engine: str, model: str) -> str | None:
        """Note that an engine is called, by its label and what it serves; return the `traceparent` for it."""

    def end(self, exchange: "Exchange", outcome: Outcome, finished_at: float) -> None:
        """Note how the request has ended."""


@dataclass(slots=True)
class Exchange:
    """What is known of one request; times in seconds of `time.perf_counter()`, 0.0 where not reached."""

    request_id: str
    # Never the client's own: two requests of one id would meet in the engine.
    engine_request_id: str
    route: Route
    method: str
    received_at: float
    status: int = 0
    answer_complete: bool = False
    outcome: Outcome | None = None
    error_code: str | None = None
    # By what the client is counted; empty where nothing is counted.
    client: str = ""
    # What tells the client how it stands, for the answer whatever that is.
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    # None where nobody traces.
    trace: Trace | None = None
    streamed: bool = False
    engine: str | None = None
    body_read_at: float = 0.0
    queue_entered_at: float = 0.0
    queue_left_at: float = 0.0
    engine_called_at: float = 0.0
    engine_answered_at: float = 0.0
    answer_started_at: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def engine_headers(self) -> dict[str, str]:
        """The names by which an engine logs the request."""
        return {"X-Request-Id": self.engine_request_id, "X-Gateway-Request-Id": self.request_id}

    @property
    def queued_seconds(self) -> float:
        """How long it has waited for an engine, attempts in vain included; 0.0 if it did not."""
        if not self.queue_entered_at:
            return 0.0
        return (self.queue_left_at or time.perf_counter()) - self.queue_entered_at

    def note_failed_attempt(self) -> None:
        """Count the time of an attempt that no engine has answered as waiting for one."""
        self.queue_entered_at = self.queue_entered_at or self.engine_called_at
        self.engine_called_at = 0.0


_EXCHANGE = "gateway.exchange"
# The scope's extension by which our server gives a request the line to its client.
LINE = "gateway.line"


class Line(Protocol):
    """The line to a request's client, for what costs too much by ASGI's messages (docs/adr/0020, 0022)."""

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call once when the client leaves before the answer is complete; None calls nobody."""

    def write(self, piece: bytes) -> bool:
        """Write a piece of an answer, neither its first nor its last.

        False without effect if that would have to wait, or there is nobody to write to.
        """


def remember(scope: Scope, exchange: Exchange) -> Exchange:
    """Attach a request's record to its scope, for whoever handles it further in."""
    scope[_EXCHANGE] = exchange
    return exchange


def exchange_of(scope: Scope) -> Exchange:
    """Return the record of the request that a scope belongs to."""
    return cast("Exchange", scope[_EXCHANGE])


def line_of(scope: Scope) -> Line:
    """Return the line to the client of a scope's request."""
    return cast("Line", scope["extensions"][LINE])


@dataclass(frozen=True, slots=True)
class Generation:
    """A request that policy has let through; `body` is what the engine gets.

    `max_tokens` is what the client asks for at most, None where it does not say, for each of so many `choices`;
    `model` the name that it asks for, empty where it names none; `conversation` what all turns of one have in common,
    0 where that is not known.
    """

    path: str
    body: bytes
    stream: bool
    hide_usage: bool
    max_tokens: int | None = None
    choices: int = 1
    model: str = ""
    conversation: int = 0


class StartReport(BaseModel):
    """A start that goes on; `usual_seconds` is what earlier ones took, null where none is known.

    `seconds_left` is null too once it takes longer than usual.
    """

    elapsed_seconds: float
    usual_seconds: float | None
    seconds_left: float | None


class StageReport(BaseModel):
    """How far an engine has come by its launcher's word; `progress` is a share of 1, null where it is not known."""

    name: StageName
    progress: float | None
    detail: str | None
    seconds: float


class EngineReport(BaseModel):
    """One engine as `/readyz?verbose` shows it, or a launcher that has none yet; `stage` is null without a launcher."""

    engine: str
    state: str
    since: str
    seconds_in_state: float
    waits_for: str | None
    models: list[str]
    outstanding: int
    warmup_ttft_seconds: float | None
    start: StartReport | None
    stage: StageReport | None


class ReadinessReport(BaseModel):
    """What `/readyz?verbose` answers; `notes` say what is wrong though requests may be taken."""

    ready: bool
    draining: bool
    waits_for: str | None
    seconds_left: float | None
    engines: list[EngineReport]
    notes: list[str]
