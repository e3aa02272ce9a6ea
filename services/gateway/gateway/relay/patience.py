"""A timeout that can be used a million times a stream: one lazy timer instead of one for each wait."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
# uvloop's clock has steps of one millisecond and its timers may come that much early.
CLOCK_STEP_SECONDS = 0.002


class Patience:
    """Bounds the waits of the current task, one at a time.

    A wait only notes when it would be too long; the timer looks at that note when it fires and goes on
    sleeping if the wait is over. `asyncio.timeout` would set and clear a timer for every chunk.
    """

    __slots__ = ("_expires_at", "_fired", "_loop", "_timer", "_waiting", "task")

    def __init__(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("Patience belongs to a task")
        self.task = task
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at = 0.0
        self._waiting = False
        self._fired = False

    async def wait(self, awaitable: Awaitable[T], seconds: float) -> T:
        """Return the awaitable's result; cancel it and raise TimeoutError after `seconds`."""
        self._expires_at = expires_at = self._loop.time() + seconds
        if self._timer is None:
            self._timer = self._loop.call_at(expires_at, self._look)
        elif expires_at < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(expires_at, self._look)
        self._waiting = True
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._fired:
                self._fired = False
                # A count above 0 is somebody else's cancellation, which goes on.
                if self.task.uncancel() == 0:
                    raise TimeoutError from None
            raise
        finally:
            self._waiting = False

    def renew(self, seconds: float) -> None:
        """Let the wait that goes on last for so many seconds from now."""
        self._expires_at = self._loop.time() + seconds

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        if self._loop.time() < self._expires_at - CLOCK_STEP_SECONDS:
            self._timer = self._loop.call_at(self._expires_at, self._look)
            return
        self._fired = True
        self.task.cancel()
