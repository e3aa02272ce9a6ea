"""What the launcher and its engines are doing now, for whoever asks, and the time that each stage took."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from launcher.supervision.driver import CardMemory
from launcher.supervision.stages import Stage, read_sign

VERSION = 1

log = logging.getLogger(__name__)


class Progress:
    """The stages that one engine, or the launcher before there are engines, goes through; safe between threads."""

    def __init__(self, name: str, stage: Stage, port: int | None = None, sequences: int | None = None) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._port = port
        self._sequences = sequences
        self._stage = stage
        self._since = time.time()
        self._clock = time.monotonic()
        self._started_at: float | None = None
        self._share: float | None = None
        self._detail: str | None = None
        self._times: dict[Stage, float] = {}

    @property
    def stage(self) -> Stage:
        """The present one."""
        return self._stage

    def enter(self, stage: Stage, detail: str | None = None, share: float | None = None) -> None:
        """Go on to a stage, or tell more of the present one; `share` is 0 to 1. One line for a stage that ends."""
        with self._lock:
            ended = self._move(stage, detail, share)
        self._tell(ended)

    def hear(self, line: str) -> None:
        """Take from a line of the engine's log what it says about the start; a start never goes back."""
        sign = read_sign(line)
        if sign is None:
            return
        with self._lock:
            # Its health may be noted in this very moment, which the line must not undo.
            starts = Stage.STARTING.rank <= self._stage.rank < Stage.SERVING.rank
            is_more = sign.stage is self._stage and sign.progress is not None
            is_news = starts and (sign.stage.rank > self._stage.rank or is_more)
            ended = self._move(sign.stage, None, sign.progress) if is_news else None
        self._tell(ended)

    def _move(self, stage: Stage, detail: str | None, share: float | None) -> tuple[Stage, float] | None:
        """With the lock held; return the stage of a start that this ends, and its seconds."""
        self._detail, self._share = detail, share
        if stage is self._stage:
            return None
        if stage is Stage.STARTING:
            self._started_at = time.time()
        left, now = self._stage, time.monotonic()
        spent = now - self._clock
        self._stage, self._since, self._clock = stage, time.time(), now
        if not Stage.STARTING.rank <= left.rank < Stage.SERVING.rank:
            return None
        self._times[left] = self._times.get(left, 0.0) + spent
        return (left, spent) if stage.rank <= Stage.SERVING.rank else None

    def _tell(self, ended: tuple[Stage, float] | None) -> None:
        """Without the lock: whoever asks for the state must not wait for who reads the log."""
        if ended is not None:
            log.info("%s: %s took %.1f s", self._name, *ended)

    def times(self) -> dict[str, float]:
        """Seconds of every stage of the start that is over."""
        with self._lock:
            return {str(stage): spent for stage, spent in self._times.items()}

    def report(self) -> dict[str, Any]:
        """The present state, as /status tells it."""
        with self._lock:
            own = {"port": self._port, "sequences": self._sequences} if self._port is not None else {}
            started = {"started_at": self._started_at} if self._port is not None else {}
            shown = {"stage": str(self._stage), "since": self._since}
            return {**own, **shown, **started, "progress": self._share, "detail": self._detail}


class Board:
    """All progress of this launcher."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._own = Progress("launcher", Stage.CHECKING)
        self._engines: tuple[Progress, ...] = ()
        self._cards: tuple[CardMemory, ...] = ()

    @property
    def own(self) -> Progress:
        """The launcher's, which counts until the engines are known."""
        return self._own

    @property
    def engines(self) -> tuple[Progress, ...]:
        """The engines', in their order."""
        return self._engines

    def expect(self, engines: Sequence[tuple[str, int, int | None]]) -> tuple[Progress, ...]:
        """From here on there are these engines, all waiting: name, port, and how many sequences each runs at most."""
        self._engines = tuple(Progress(name, Stage.WAITING, port, sequences) for name, port, sequences in engines)
        return self._engines

    def show_cards(self, cards: Sequence[CardMemory]) -> None:
        """From here on these are the cards that the engines run on, and what they hold."""
        self._cards = tuple(cards)

    def report(self) -> dict[str, Any]:
        """What /status answers: the stage of the engine that is furthest behind stands for all."""
        reports = [engine.report() for engine in self._engines]
        behind = min(reports, key=lambda report: Stage(report["stage"]).rank, default=self._own.report())
        outer = {name: behind[name] for name in ("stage", "since", "progress", "detail")}
        cards = [asdict(card) for card in self._cards]
        return {"version": VERSION, "model": self._model, **outer, "engines": reports, "cards": cards}
