"""When engines that let nobody new in have finished what they had.

vLLM 0.32 finishes answers after SIGTERM only where one process serves its HTTP: of several, each is ended at once, with
a 500 event in every running stream; its Rust front end was not tried. So the launcher waits, and SIGTERM meets engines
that have nothing to do.
"""

import time
from collections.abc import Sequence

from launcher.supervision.engine import Engine

_LOOK_SECONDS = 0.25
# A first look may come between the engine's last token and the HTTP server's last write.
_IDLE_LOOKS = 2


class Drain:
    """Looks from `begins_at` to `ends_at`, on the monotonic clock, whether any of the engines that served has work."""

    def __init__(self, engines: Sequence[Engine], begins_at: float, ends_at: float) -> None:
        self._engines, self._next_at, self._ends_at = engines, begins_at, ends_at
        self._idle_looks = 0

    @property
    def next_look_seconds(self) -> float:
        """How long until it is worth asking again."""
        return max(0.0, self._next_at - time.monotonic())

    def is_over(self) -> bool:
        """Whether all answers are complete, or the time for them is over."""
        now = time.monotonic()
        if not self._engines or now >= self._ends_at:
            return True
        if now < self._next_at:
            return False
        self._next_at = now + _LOOK_SECONDS
        self._idle_looks = 0 if any(engine.has_work() for engine in self._engines) else self._idle_looks + 1
        return self._idle_looks >= _IDLE_LOOKS
