"""Finds an engine that answers its health check and yet computes nothing.

Busy is not stalled: as long as any figure of the engine's own moves, or a request for one token is answered, it lives.
"""

import http.client
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from launcher.supervision.figures import exchange, is_idle, read_figures

# Shares of the limit: how often the figures are read, and when a busy engine that stands still is asked.
_READ_SHARE = 1 / 12
_ASK_SHARE = 1 / 3
_LONGEST_READ_SECONDS = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """Where the engine listens, the model's name there, and after how many seconds of standing still it is stalled."""

    host: str
    port: int
    model: str
    seconds: float


class Pulse:
    """One request for one token, in a thread; there is never a second one before the first has ended."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._thread: threading.Thread | None = None
        self.is_refused = False
        self.beats = 0

    def ask(self) -> None:
        """Send it unless one is under way; an answer counts in `beats`."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        target = self._target
        body = {"model": target.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        # After twice the limit the connection may as well be dead: the engine has moved without answering this.
        status, _ = exchange(
            (target.host, target.port), "POST", "/v1/completions", json.dumps(body), 2 * target.seconds
        )
        if status == http.client.OK:
            self.beats += 1
        elif http.client.BAD_REQUEST <= status < http.client.INTERNAL_SERVER_ERROR and not self.is_refused:
            # This engine has no completions, or wants a key; who refuses need not be who computes.
            log.warning("the engine refuses a one-token request (%d): an idle stall will not be seen", status)
            self.is_refused = True


class StallWatch:
    """A thread that calls `on_stall` once, with the seconds that the engine stood still, unless it is closed before."""

    def __init__(self, target: Target, on_stall: Callable[[float], None]) -> None:
        self._target = target
        self._on_stall = on_stall
        self._closed = threading.Event()
        self._pulse = Pulse(target)
        self._thread = threading.Thread(target=self._run, name=f"stall-{target.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end at its next step; a request that is under way is left to its own limit."""
        self._closed.set()

    def _run(self) -> None:
        step = min(_LONGEST_READ_SECONDS, self._target.seconds * _READ_SHARE)
        stillness = Stillness(self._target.seconds, longest_step=3 * step)
        beats = 0
        while not self._closed.wait(step):
            figures = read_figures((self._target.host, self._target.port), step)
            if figures is not None and not figures:
                log.warning("the engine tells no figures of its work (--disable-log-stats?): stalls will not be seen")
                return
            beats, pulsed = self._pulse.beats, self._pulse.beats > beats
            excused = self._pulse.is_refused and is_idle(figures)
            stillness.note(figures, time.monotonic(), pulsed=pulsed or excused)
            if stillness.is_over and not self._closed.is_set():
                self._on_stall(stillness.seconds)
                return
            if stillness.is_doubtful:
                self._pulse.ask()


class Stillness:
    """How long nothing has moved, for seconds that this process itself was awake for.

    A paused container or a host without time for anybody must not look like a stalled engine: a step counts for no
    more than `longest_step`.
    """

    def __init__(self, limit_seconds: float, longest_step: float) -> None:
        self._limit = limit_seconds
        self._longest_step = longest_step
        self._figures: dict[bytes, float] | None = None
        self._last: float | None = None
        self._idle_seconds = 0.0
        self.seconds = 0.0

    def note(self, figures: dict[bytes, float] | None, now: float, *, pulsed: bool) -> None:
        """Take one reading; None means that there was no answer, which is no movement."""
        step = 0.0 if self._last is None else min(now - self._last, self._longest_step)
        self._last = now
        moved = figures is not None and figures != self._figures
        if moved:
            self._figures = figures
        if moved or pulsed:
            self.seconds = self._idle_seconds = 0.0
        elif is_idle(figures) and self._idle_seconds < self._limit:
            # With nothing to do, standing still is right; after the limit it is asked all the same.
            self._idle_seconds += step
        else:
            self.seconds += step

    @property
    def is_doubtful(self) -> bool:
        """Whether it is time to ask."""
        asks_idle = self._idle_seconds >= self._limit
        return asks_idle or self.seconds >= self._limit * _ASK_SHARE

    @property
    def is_over(self) -> bool:
        """Whether the engine counts as stalled."""
        return self.seconds >= self._limit
