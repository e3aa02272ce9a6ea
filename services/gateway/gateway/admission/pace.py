"""How fast places come free, by how long the latest requests have had theirs."""

import math

from gateway.errors import RETRY_AFTER_SECONDS

REMEMBERED = 32
# Longer is not honoured: the OpenAI SDKs ignore a Retry-After above a minute.
MOST_RETRY_AFTER_SECONDS = 60


class Pace:
    """Requests finished a second: those that run, divided by how long one runs (Little's law).

    Counting what has finished lately would take the time before a crowd came, and a restart, for slowness.
    """

    def __init__(self) -> None:
        self._mean_seconds = 0.0
        self._known = 0
        self._running = 0

    def begin(self) -> None:
        """Note that a request has a place."""
        self._running += 1

    def end(self, seconds: float | None) -> None:
        """Note that one has none any more, and for how long it had its own; None if it was not answered."""
        self._running -= 1
        if seconds is not None:
            self._known = min(self._known + 1, REMEMBERED)
            self._mean_seconds += (seconds - self._mean_seconds) / self._known

    def seconds_for(self, number: int) -> float | None:
        """Return how long it takes until so many have ended; None if none has yet."""
        if not self._known or not self._running:
            return None
        return number * self._mean_seconds / self._running


def retry_after(seconds: float | None) -> int:
    """Return what to put into Retry-After for a wait that should take so long."""
    return RETRY_AFTER_SECONDS if seconds is None else min(max(1, math.ceil(seconds)), MOST_RETRY_AFTER_SECONDS)
