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

    def note(self, seconds: float) -> None:
        """Note how long a request that was answered had its place."""
        self._known = min(self._known + 1, REMEMBERED)
        self._mean_seconds += (seconds - self._mean_seconds) / self._known

    def seconds_for(self, number: int, running: int) -> float | None:
        """Return how long it takes until so many places have come free; None if none has yet."""
        if not self._known or not running:
            return None
        return number * self._mean_seconds / running


def retry_after(seconds: float | None) -> int:
    """Return what to put into Retry-After for a wait that should take so long."""
    return RETRY_AFTER_SECONDS if seconds is None else min(max(1, math.ceil(seconds)), MOST_RETRY_AFTER_SECONDS)
