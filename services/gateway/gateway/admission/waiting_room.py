"""The waiting room: requests that find no engine are kept, in the order they came, until one takes requests."""

import asyncio
import bisect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.errors import NotReady
from gateway.metrics import Metrics
from gateway.schemas import Exchange
from gateway.upstreams import Upstreams

# Tells the one who waits its place, counted from 1, and the seconds that are left, if they are known.
Tell = Callable[[int, float | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Waiter:
    received_at: float
    called: asyncio.Future[None]


class WaitingRoom:
    """Takes in up to `size` requests, each for `timeout_seconds` in all; every `tell_seconds` they hear of it."""

    def __init__(
        self, upstreams: Upstreams, metrics: Metrics, *, size: int, timeout_seconds: float, tell_seconds: float
    ) -> None:
        self._upstreams = upstreams
        self._size = size
        self._timeout_seconds = timeout_seconds
        self._tell_seconds = tell_seconds
        self._waiting: list[_Waiter] = []
        metrics.show_queue_depth_from(self.__len__)

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, exchange: Exchange, tell: Tell) -> None:
        """Return when engines may take requests again, or the gateway stops; the caller looks which of the two.

        A request that finds no engine after all comes back to its old place, full or not, and its time goes on
        running. Raises NotReady if the room is full or the time is over; cancelling gives the place up.
        """
        comes_back = bool(exchange.queue_left_at)
        exchange.queue_entered_at = exchange.queue_entered_at or time.perf_counter()
        exchange.queue_left_at = 0.0
        try:
            expires_at = exchange.queue_entered_at + self._timeout_seconds
            if time.perf_counter() >= expires_at:
                raise self._expired()
            if self._may_go():
                return
            if len(self._waiting) >= self._size and not comes_back:
                raise self._upstreams.not_ready(f"{self._size} requests wait already" if self._size else None)
            await self._take_place(exchange, expires_at, tell)
        finally:
            exchange.queue_left_at = time.perf_counter()

    def wake(self) -> None:
        """Let everyone go, in order, if there is somewhere to go; called whenever that may have changed."""
        if not self._may_go():
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called.done():
                waiter.called.set_result(None)

    def _may_go(self) -> bool:
        return self._upstreams.ready or self._upstreams.closing

    async def _take_place(self, exchange: Exchange, expires_at: float, tell: Tell) -> None:
        waiter = _Waiter(exchange.received_at, asyncio.get_running_loop().create_future())
        bisect.insort(self._waiting, waiter, key=_arrival)
        try:
            await self._until_called(waiter, expires_at, tell)
        finally:
            if not waiter.called.done():
                self._waiting.remove(waiter)

    async def _until_called(self, waiter: _Waiter, expires_at: float, tell: Tell) -> None:
        while True:
            left = expires_at - time.perf_counter()
            if left <= 0:
                raise self._expired()
            await asyncio.wait([waiter.called], timeout=min(self._tell_seconds, left))
            if waiter.called.done():
                return
            if time.perf_counter() < expires_at:
                place = bisect.bisect_left(self._waiting, waiter.received_at, key=_arrival) + 1
                await tell(place, self._upstreams.seconds_left())
                if waiter.called.done():
                    return

    def _expired(self) -> NotReady:
        return self._upstreams.not_ready(f"the request has waited {self._timeout_seconds:g} s")


def _arrival(waiter: _Waiter) -> float:
    return waiter.received_at
