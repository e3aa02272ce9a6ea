"""The engines of one launcher: started one after the other, ended all together, whatever ends the first of them."""

import logging
import queue
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from launcher.errors import CardFault
from launcher.supervision.board import Board
from launcher.supervision.card import CardWatch
from launcher.supervision.census import describe_processes
from launcher.supervision.child import reap_orphans
from launcher.supervision.drain import Drain
from launcher.supervision.engine import Engine, Unit
from launcher.supervision.inbox import STOP_SIGNALS, Inbox
from launcher.supervision.outcome import Cause, Kind, Outcome, Scene
from launcher.supervision.output import Outlet

_POLL_SECONDS = 0.25
# Of the stop limit, kept for what ends after the last answer: vLLM takes some seconds to tear itself down.
_TEARDOWN_SECONDS = 5.0
_LAST_LINES = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Seconds: longest start of each engine, longest stop of all, and the notice before SIGTERM.

    Who was let in just before the notice is tokenized and queued when it is over.
    """

    start_seconds: float
    stop_seconds: float
    notice_seconds: float = 1.0


@dataclass(frozen=True)
class Watches:
    """What is watched beside the processes: engines that stand still for so many seconds, as this model, and cards.

    Cards have the names of CUDA_VISIBLE_DEVICES; None watches none.
    """

    model: str = ""
    stall_seconds: float | None = None
    cards: Collection[str] | None = None


class Fleet:
    """Runs the units to their end. `before_stop` is called when a stop begins and any engine serves."""

    def __init__(
        self,
        units: Sequence[Unit],
        inbox: Inbox,
        board: Board,
        limits: Limits,
        watches: Watches,
        *,
        before_stop: Callable[[], None],
    ) -> None:
        self._units, self._inbox, self._limits, self._watches = units, inbox, limits, watches
        self._before_stop = before_stop
        self._board = board
        self._progress = board.expect([(unit.name, unit.port, unit.sequences) for unit in units])
        self._engines: list[Engine] = []
        self._alarms: queue.SimpleQueue[Cause] = queue.SimpleQueue()
        self._began = time.monotonic()
        self._serving_since: float | None = None

    def run(self) -> Outcome:
        """Start, stay, stop; nothing of any engine is left afterwards."""
        with ExitStack() as stack:
            outlets = (stack.enter_context(Outlet(1)), stack.enter_context(Outlet(2)))
            names = self._watches.cards
            cards = None if names is None else CardWatch(self._alarm_of_card, self._board.show_cards, names)
            if cards is not None:
                stack.callback(cards.close)
            try:
                cause = self._stay(outlets)
                scene = self._look(cause)
                killed = self._stop(cause)
            finally:
                for engine in reversed(self._engines):
                    engine.end()
        lines = {engine.unit.name: engine.output.last_lines(_LAST_LINES) for engine in self._engines}
        return Outcome(cause, scene, killed, lines, cards.noted() if cards else ())

    def _stay(self, outlets: tuple[Outlet, Outlet]) -> Cause:
        """Start the engines and return what ends the first of them."""
        # What came before the first start is looked at first.
        starting: Engine | None = None
        seconds: float | None = 0.0
        while True:
            received = self._inbox.wait(seconds)
            stop = next((number for number in received if number in STOP_SIGNALS), None)
            ended = self._poll()
            if ended is not None:
                return Cause(Kind.ENDED if stop is None else Kind.STOPPED, ended, self._engines[ended].status, stop)
            if stop is not None:
                return Cause(Kind.STOPPED, signal=stop)
            if not self._alarms.empty():
                return self._alarms.get()
            if starting is not None and starting.try_health():
                self._note_healthy(starting)
            elif starting is not None and time.monotonic() - starting.began > self._limits.start_seconds:
                return Cause(Kind.LATE, len(self._engines) - 1)
            starting = self._starting(outlets)
            seconds = None if starting is None else _POLL_SECONDS

    def _starting(self, outlets: tuple[Outlet, Outlet]) -> Engine | None:
        """The engine whose start is under way; two that start together fail in vLLM's look at the card's memory."""
        if self._engines and not self._engines[-1].is_serving:
            return self._engines[-1]
        index = len(self._engines)
        if index == len(self._units):
            return None
        several = len(self._units) > 1
        self._engines.append(Engine(self._units[index], self._progress[index], outlets, prefixed=several))
        return self._engines[-1]

    def _note_healthy(self, engine: Engine) -> None:
        if self._watches.stall_seconds is not None:
            alarm = partial(self._alarm_of_stall, len(self._engines) - 1)
            engine.watch(self._watches.model, self._watches.stall_seconds, alarm)
        if len(self._engines) == len(self._units):
            self._serving_since = time.monotonic()
            if len(self._units) > 1:
                log.info("all %d engines serve after %.1f s", len(self._units), self._serving_since - self._began)

    def _poll(self) -> int | None:
        """Index of the first engine that has ended."""
        ended = [index for index, engine in enumerate(self._engines) if engine.poll() is not None]
        reap_orphans([engine.group for engine in self._engines])
        return ended[0] if ended else None

    def _look(self, cause: Cause) -> Scene:
        now = time.monotonic()
        served = 0.0 if self._serving_since is None else now - self._serving_since
        stages = tuple(str(progress.stage) for progress in self._progress)
        groups = [] if cause.kind is Kind.STOPPED else [engine.group for engine in self._engines]
        return Scene(now - self._began, served, stages, describe_processes(groups))

    def _stop(self, cause: Cause) -> bool:
        """End what still runs, in order; whether anything had to be killed for the stop limit."""
        self._end_culprit(cause)
        if self._have_all_ended():
            return False
        log.info("stopping on %s, within %.0f s", _reason(cause), self._limits.stop_seconds)
        deadline = time.monotonic() + self._limits.stop_seconds
        if self._wait_for_all(self._give_notice(deadline), deadline):
            return False
        for engine in self._engines:
            if engine.status is None:
                engine.kill()
        return True

    def _end_culprit(self, cause: Cause) -> None:
        """One that hangs is not asked."""
        culprit = None if cause.engine is None else self._engines[cause.engine]
        if culprit is not None and cause.kind is Kind.STALLED:
            log.error("%s has stood still for %.0f s", culprit.unit.name, cause.still_seconds)
            culprit.abort()
        elif culprit is not None and cause.kind is Kind.LATE:
            culprit.kill()

    def _wait_for_all(self, drain: Drain, deadline: float) -> bool:
        """Ask every engine to end once its answers are complete; whether all did before the deadline or a SIGINT."""
        asked = False
        while (left := deadline - time.monotonic()) > 0:
            if not asked and drain.is_over():
                for engine in self._engines:
                    engine.ask_to_end()
                asked = True
            if self._have_all_ended():
                return True
            if signal.SIGINT in self._inbox.wait(left if asked else min(left, drain.next_look_seconds)):
                log.warning("second SIGINT")
                return False
        return False

    def _give_notice(self, deadline: float) -> Drain:
        """Tell everybody that a stop begins; return what is to be waited for before SIGTERM."""
        serving = [engine for engine in self._engines if engine.is_serving]
        for engine in self._engines:
            engine.announce_stop()
        now, half = time.monotonic(), self._limits.stop_seconds / 2
        if serving:
            try:
                self._before_stop()
            except OSError:
                log.exception("no notice before the stop; requests of the last second may fail")
        return Drain(serving, now + min(self._limits.notice_seconds, half), deadline - min(_TEARDOWN_SECONDS, half))

    def _have_all_ended(self) -> bool:
        self._poll()
        return all(engine.status is not None for engine in self._engines)

    def _alarm_of_stall(self, index: int, seconds: float) -> None:
        self._alarms.put(Cause(Kind.STALLED, index, still_seconds=seconds))
        self._inbox.nudge()

    def _alarm_of_card(self, fault: CardFault) -> None:
        self._alarms.put(Cause(Kind.CARD, fault=fault))
        self._inbox.nudge()


def _reason(cause: Cause) -> str:
    if cause.signal is not None:
        return cause.signal.name
    return "a card fault" if cause.kind is Kind.CARD else "the end of another engine"
