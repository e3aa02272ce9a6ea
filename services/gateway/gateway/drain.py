"""Stopping in order."""

import time

from gateway.readiness import Readiness
from gateway.relay import InFlight
from gateway.workers import Shared

# After the grace, streams need this long for their error event.
LAST_EVENT_SECONDS = 2.0


class Drain:
    """The order of stopping: readiness falls, open answers get the grace, the rest one error event each.

    Several processes stop together: one that has nothing left goes on refusing until none has.
    """

    def __init__(
        self, readiness: Readiness, in_flight: InFlight, grace_seconds: float, common: Shared | None = None
    ) -> None:
        self._common = common
        self._readiness = readiness
        self._in_flight = in_flight
        self._grace_seconds = grace_seconds
        self._ends_at: float | None = None
        self._ended = False

    def advance(self) -> bool:
        """Take the next step; return True when nothing is left to wait for. Called again and again."""
        now = time.monotonic()
        if self._ends_at is None:
            self._readiness.drain()
            self._ends_at = now + self._grace_seconds
        if not self._open_answers():
            return True
        if now >= self._ends_at and not self._ended:
            self._ended = True
            self._in_flight.end_all()
        return now >= self._ends_at + LAST_EVENT_SECONDS

    def _open_answers(self) -> float:
        if not self._common:
            return len(self._in_flight)
        return self._common.tell_open_answers(len(self._in_flight))
