"""One engine as the gateway sees it: its state, and the work it has from us."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gateway.upstreams.status import EngineStatus


class State(StrEnum):
    """What is proved of an engine; the closed set behind `gateway_engine_state{state}`."""

    UNREACHABLE = "unreachable"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    BUSY = "busy"
    STALLED = "stalled"
    DRAINING = "draining"


STATES: tuple[str, ...] = tuple(State)
# One request may fail at any engine; so many in a row ask for a trial, which costs a sound engine a few tokens.
FAULTS_IN_A_ROW = 3
_TAKES_REQUESTS = frozenset({State.READY, State.BUSY})
_PROVED = _TAKES_REQUESTS | {State.STALLED}


@dataclass(slots=True)
class Start:
    """A start that goes on: since when, in seconds of `time.time()`, and how long earlier ones took, where known."""

    began_at: float
    usual_seconds: float | None
    # What began_at is: the engine process's own start, or only when it was first found away.
    is_measured: bool = False

    @property
    def elapsed_seconds(self) -> float:
        """How long it has gone on."""
        return max(0.0, time.time() - self.began_at)

    @property
    def seconds_left(self) -> float | None:
        """How long it should still take; None if nothing is known, or if it takes longer than the earlier ones."""
        if self.usual_seconds is None or self.elapsed_seconds > self.usual_seconds:
            return None
        return self.usual_seconds - self.elapsed_seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What one look found: requests in the engine's own queue and running, and how many were ours in all.

    `cache` is the share of its KV cache in use, None where it does not say; `at` tells the look from others that found
    the same.
    """

    waiting: float
    running: float
    ours: int
    cache: float | None = None
    at: float = field(default_factory=time.monotonic)


class Work(Protocol):
    """How many of the gateway's requests an engine has."""

    def begin(self, number: int = 1) -> None:
        """Count so many more, of this process."""

    def end(self, number: int = 1) -> None:
        """Count so many less, of this process."""

    def total(self) -> int:
        """Return how many there are, those of all processes together."""


class OwnWork:
    """The requests of the only process."""

    def __init__(self, number: int = 0) -> None:
        self._number = number

    def begin(self, number: int = 1) -> None:
        """Count so many more."""
        self._number += number

    def end(self, number: int = 1) -> None:
        """Count so many less."""
        self._number -= number

    def total(self) -> int:
        """Return how many there are."""
        return self._number


class Engine:
    """An engine's address, state and outstanding work; readiness alone changes the state.

    `label` comes from the configuration only, so that it is safe as a metric's label.
    """

    def __init__(self, label: str, base_url: str) -> None:
        self.label = label
        self.base_url = base_url
        self.state = State.UNREACHABLE
        self.since = time.time()
        self.waits_for: str | None = "the first look at it"
        self._models: list[dict[str, Any]] = []
        self._model_names: frozenset[str] = frozenset()
        self.work: Work = OwnWork()
        # Among the engines that several processes know; None as long as only one does.
        self.number: int | None = None
        # By the last look that found the engine's own figures.
        self.load: Load | None = None
        self.chunks_received = 0
        self.unsettled_aborts: list[float] = []
        self.warmup_ttft_seconds: float | None = None
        self.start: Start | None = None
        # What its launcher said last, if it has one and that can be asked.
        self.told: EngineStatus | None = None
        # A connection was just refused: no more requests until readiness has looked.
        self.is_suspect = False
        # Its answers keep failing: readiness should find out whether that is its own fault.
        self.is_doubted = False
        self._faults_in_a_row = 0
        # Set when something happened that readiness should look at before its next turn.
        self.attention = asyncio.Event()
        self._looks_begun = self._looks_ended = 0
        self._look_ended = asyncio.Event()

    @property
    def outstanding(self) -> int:
        """How many of the gateway's requests it has."""
        return self.work.total()

    @property
    def is_proved(self) -> bool:
        """Whether it has proved itself since it was last away."""
        return self.state in _PROVED

    @property
    def takes_requests(self) -> bool:
        """Whether it has proved itself and is not known to stand still, to refuse connections or to be stopped."""
        return self.state in _TAKES_REQUESTS and not self.is_suspect and not self.is_stopping

    @property
    def is_stopping(self) -> bool:
        """Whether its launcher says that it is being stopped, or has ended."""
        return self.told is not None and self.told.is_over

    @property
    def shown_state(self) -> State:
        """The state as people are told: what has become known since the last look counts too."""
        if self.is_suspect:
            return State.UNREACHABLE
        return State.DRAINING if self.is_stopping and self.state in _TAKES_REQUESTS else self.state

    @property
    def models(self) -> list[dict[str, Any]]:
        """What it has listed, at the last look that saw any."""
        return self._models

    @models.setter
    def models(self, listed: list[dict[str, Any]]) -> None:
        self._models = listed
        self._model_names = frozenset(model["id"] for model in listed)

    @property
    def model(self) -> str:
        """The name of what it serves; of several, the first; empty until it has listed any."""
        return str(self._models[0]["id"]) if self._models else ""

    def serves(self, model: str) -> bool:
        """Tell whether it has listed a model of this name."""
        return model in self._model_names

    @property
    def family(self) -> str:
        """What the engines behind one name have in common, the name; for a fixed address, its label."""
        return self.label.partition("/")[0]

    def hear(self, told: EngineStatus | None) -> None:
        """Take its launcher's word, or forget it; readiness is asked to look when it says something new."""
        was, self.told = self.told, told
        if (was and (was.stage, was.started_at)) != (told and (told.stage, told.started_at)):
            self.attention.set()

    def note_abort(self) -> None:
        """Remember that work of ours was ended early, for readiness to confirm by the engine's counters."""
        self.unsettled_aborts.append(time.monotonic())
        self.attention.set()

    def note_connect_fault(self) -> None:
        """Take no more requests until readiness has looked, which it is asked to do at once."""
        self.is_suspect = True
        self.attention.set()

    def note_answer(self) -> None:
        """Note a sound answer."""
        self._faults_in_a_row = 0

    def note_fault(self) -> None:
        """Note an answer that was broken, or an error of the engine's own; several in a row raise doubts."""
        self._faults_in_a_row += 1
        if self._faults_in_a_row >= FAULTS_IN_A_ROW:
            self._faults_in_a_row = 0
            self.note_doubt()

    def note_doubt(self) -> None:
        """Ask readiness to try the engine itself."""
        self.is_doubted = True
        self.attention.set()

    async def next_look(self, timeout_seconds: float) -> None:
        """Ask readiness to look, and return when one that began after this is over, or after `timeout_seconds`."""
        wanted = self._looks_begun + 1
        self.attention.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self._looks_ended < wanted:
                    await self._look_ended.wait()

    @property
    def looks(self) -> tuple[int, int]:
        """How many looks have begun and ended."""
        return self._looks_begun, self._looks_ended

    def follow_looks(self, begun: int, ended: int) -> None:
        """Take over how far another process, which looks at it, has come."""
        self._looks_begun = begun
        if ended != self._looks_ended:
            self._looks_ended = ended
            self._tell_ended()

    def begin_look(self) -> None:
        """Note that a look begins: what happened before is seen by it."""
        self._looks_begun += 1

    def end_look(self) -> None:
        """Tell those who wait for it that the state says what the look has found."""
        self._looks_ended = self._looks_begun
        self._tell_ended()

    def _tell_ended(self) -> None:
        self._look_ended.set()
        self._look_ended = asyncio.Event()
