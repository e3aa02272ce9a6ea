"""The other candidate: as many as first-token times allow, by Gradient2 of Netflix' concurrency-limits.

What an engine is given shrinks when its first-token times are longer than they have been for long, and grows by the
square root otherwise. It needs nothing of the engine but its answers.
"""

import time

from gateway.admission import Admission
from gateway.admission.admission import Place
from gateway.upstreams import Engine

TOLERANCE = 1.5
SMOOTHING = 0.2
LONG_WINDOW = 600
FIRST, LEAST, MOST = 20.0, 4.0, 1000.0


class Gradient:
    """A capacity that is told how long each request has waited for its first token."""

    def __init__(self) -> None:
        self.limit = FIRST
        self._long = 0.0

    def has_room(self, engine: Engine, _running: int, *, spare: bool) -> bool:  # noqa: ARG002
        """Tell whether an engine has fewer than the limit."""
        return engine.outstanding < int(self.limit)

    def most(self, _engine: Engine) -> int:
        """Return the limit."""
        return int(self.limit)

    def note_crowd(self, _engine: Engine) -> None:
        """Do nothing about it."""

    def note(self, seconds: float, outstanding: int) -> None:
        """Take a first-token time into account, and how many were out when it came."""
        self._long = self._long or seconds
        self._long += (seconds - self._long) * 2 / (LONG_WINDOW + 1)
        if self._long / seconds > 2:  # noqa: PLR2004  (as there: a recovery from overload is followed faster)
            self._long *= 0.95
        if outstanding < self.limit / 2:
            return
        gradient = max(0.5, min(1.0, TOLERANCE * self._long / seconds))
        wanted = self.limit * gradient + self.limit**0.5
        self.limit = min(MOST, max(LEAST, self.limit * (1 - SMOOTHING) + wanted * SMOOTHING))


def install(admission: Admission) -> Gradient:
    """Let an admission decide by first-token times."""
    gradient = Gradient()
    admission._capacity = gradient  # noqa: SLF001  (the loser of a comparison gets no hook of its own)
    leave = admission.leave

    def told(place: Place, error: BaseException | None) -> None:
        answered_at = place.request.exchange.engine_answered_at or time.perf_counter()
        gradient.note(max(1e-4, answered_at - place.began_at), place.engine.outstanding)
        leave(place, error)

    admission.leave = told  # type: ignore[method-assign]
    return gradient
