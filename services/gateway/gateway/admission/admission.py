"""Admission: a request goes to an engine that has room, or waits in one queue that is fair between clients."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import cast

from gateway.admission.capacity import Capacity
from gateway.admission.crowd import Alone, Crowd
from gateway.admission.pace import Pace, retry_after
from gateway.admission.shares import Shares, Turn
from gateway.admission.work import Work
from gateway.errors import GatewayError, NotReady, Overloaded, ShuttingDown
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Generation
from gateway.upstreams import Engine, Upstreams

# Tells the one who waits its place, counted from 1, and the seconds that are left, if they are known.
Tell = Callable[[int, float | None], Awaitable[None]]
# So long a place may stay free for a process that was told that it is its turn.
YIELD_SECONDS = 0.01
# Who waits for longer wants to know; the first comment takes the status, and what ends sooner can still be refused.
FIRST_TELL_SECONDS = 1.0


class Admission:
    """Keeps up to `size` requests waiting, each for `timeout_seconds` in all.

    They hear of it every `tell_seconds`, first after `FIRST_TELL_SECONDS` if that is sooner. Of several processes
    each has its own part of those that wait; limits are for the whole `crowd`.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        metrics: Metrics,
        capacity: Capacity,
        *,
        size: int,
        timeout_seconds: float,
        tell_seconds: float,
        crowd: Crowd | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._capacity = capacity
        self._size = size
        self._timeout_seconds = timeout_seconds
        self._tell_seconds = tell_seconds
        self._shares = Shares()
        self._work = Work()
        self._pace = Pace()
        self._running = 0
        self._crowd = crowd or Alone()
        self._insisting: asyncio.TimerHandle | None = None
        metrics.show_queue_depth_from(lambda: self._crowd.waiting)
        metrics.show_in_flight_limit_from(self._limit)

    def __len__(self) -> int:
        """Return how many requests wait in this process."""
        return len(self._shares)

    async def admit(self, exchange: Exchange, generation: Generation, tell: Tell) -> "Place":
        """Return a place at an engine; whoever leaves it as a context gives it back.

        A request whose engine could not be had after all comes back to where it was among its client's own, queue full
        or not, and its time goes on running. Raises NotReady or Overloaded if the queue is full or the time over, and
        ShuttingDown. Cancelling gives everything up.
        """
        if len(self._shares):
            self.wake()
        cost = self._work.expected(generation)
        share = self._shares.of(exchange.client, cost)
        model = self._upstreams.known(generation.model)
        request = _Request(share, exchange.received_at, cost, generation.choices, model, exchange, generation)
        if not exchange.queue_entered_at and (place := self._begin_at_once(request)):
            return place
        comes_back = bool(exchange.queue_left_at)
        exchange.queue_entered_at = exchange.queue_entered_at or time.perf_counter()
        exchange.queue_left_at = 0.0
        try:
            return await self._wait(request, tell, comes_back=comes_back)
        finally:
            exchange.queue_left_at = time.perf_counter()

    def wake(self, *, insists: bool = False) -> None:
        """Begin what can be begun, in turn; called whenever engines may take more than before, or the gateway stops.

        Where the next place is another process's it gets it, unless this one `insists`.
        """
        full: set[str] = set()
        while turn := self._shares.next_turn(full):
            request = cast("_Request", turn)
            if not request.model and (model := self._upstreams.known(request.generation.model)):
                # It came before any engine had listed it.
                self._shares.rename(request, model)
                continue
            with self._crowd:
                try:
                    engine = self._engine_for(request)
                except ShuttingDown as error:
                    self._end_wait(request, error)
                    continue
                if engine is None:
                    self._look_for_room()
                    full.add(request.model)
                    continue
                if self._crowd.others_first() and not insists:
                    self._yield()
                    return
                self._end_wait(request, self._begin(engine, request))
            insists = False

    def leave(self, place: "Place", error: BaseException | None) -> None:
        """Take a place back; `error` is what ended the request, if anything did."""
        request = place.request
        self._running -= request.places
        place.engine.work.end(request.places)
        done = self._work.done(request.exchange, request.generation, request.cost, error)
        self._shares.end(request, done - request.cost)
        self._tell()
        self._pace.end(time.perf_counter() - place.began_at if request.exchange.engine_answered_at else None)
        self.wake()
        self._crowd.call()

    def _engine_for(self, request: "_Request") -> Engine | None:
        spare = self._shares.leaves_spare(request.share)
        return self._upstreams.pick(
            lambda engine: self._capacity.has_room(engine, self._crowd.running, spare=spare),
            request.model,
            request.generation.conversation,
        )

    def _begin_at_once(self, request: "_Request") -> "Place | None":
        if self._shares.are_for(request.model):
            return None
        with self._crowd:
            engine = self._engine_for(request)
            return self._begin(engine, request) if engine and not self._crowd.others_first() else None

    def _begin(self, engine: Engine, request: "_Request") -> "Place":
        self._shares.begin(request)
        self._pace.begin()
        self._running += request.places
        engine.work.begin(request.places)
        self._tell()
        return Place(self, engine, request)

    def _end_wait(self, request: "_Request", result: "Place | GatewayError") -> None:
        self._shares.remove(request)
        self._tell()
        request.called.set_result(result)

    async def _wait(self, request: "_Request", tell: Tell, *, comes_back: bool) -> "Place":
        expires_at = request.exchange.queue_entered_at + self._timeout_seconds
        if time.perf_counter() >= expires_at:
            # An engine was asked meanwhile, and did not take it.
            turned_away = request.exchange.engine is not None
            raise self._expired(request, len(self._shares) + 1, turned_away=turned_away)
        if place := self._begin_at_once(request):
            return place
        called: asyncio.Future[Place | GatewayError] = asyncio.get_running_loop().create_future()
        request.called = called
        with self._crowd:
            if not comes_back:
                self._make_room_for(request)
            self._shares.add(request)
            self._tell()
        try:
            self.wake()
            await self._until_called(request, expires_at, tell)
        except BaseException:
            if not called.done():
                self._shares.remove(request)
                self._tell()
            elif isinstance(given := called.result(), Place):
                self.leave(given, None)
            raise
        finally:
            # It knows the place, and that the request: a knot that only the collector would untie.
            del request.called
        result = called.result()
        if isinstance(result, GatewayError):
            raise result
        return result

    async def _until_called(self, request: "_Request", expires_at: float, tell: Tell) -> None:
        tell_seconds = min(FIRST_TELL_SECONDS, self._tell_seconds)
        while not request.called.done():
            left = expires_at - time.perf_counter()
            if left <= 0:
                raise self._expired(request, self._shares.place(request))
            await asyncio.wait([request.called], timeout=min(tell_seconds, left))
            tell_seconds = self._tell_seconds
            if not request.called.done() and time.perf_counter() < expires_at:
                place = self._shares.place(request)
                await tell(place, self._seconds_left(place))

    def _yield(self) -> None:
        """Leave the next place to another process; one that does not take it at once loses it."""
        self._crowd.call()
        if self._insisting is None:
            self._insisting = asyncio.get_running_loop().call_later(YIELD_SECONDS, self._insist)

    def _insist(self) -> None:
        self._insisting = None
        self.wake(insists=True)

    def _tell(self) -> None:
        self._crowd.tell(self._running, len(self._shares), self._shares.clients)

    def _look_for_room(self) -> None:
        for engine in self._upstreams.engines:
            if engine.takes_requests:
                self._capacity.note_crowd(engine)

    def _make_room_for(self, request: "_Request") -> None:
        """Raise if the queue is full, unless another client has so much more waiting that its last one has to go."""
        if self._crowd.waiting < self._size:
            return
        if len(self._shares):
            heaviest = self._shares.heaviest()
            if len(heaviest.waiting) > len(request.share.waiting) + 1:
                last = cast("_Request", heaviest.waiting[-1])
                reason = "those who have fewer requests waiting go first"
                self._end_wait(last, self._refusal(last, self._shares.place(last), reason))
                return
        fullness = f"{self._size} requests wait already" if self._size else None
        raise self._refusal(request, len(self._shares) + 1, fullness)

    def _expired(self, request: "_Request", place: int, *, turned_away: bool = False) -> GatewayError:
        reason = f"the request has waited {self._timeout_seconds:g} s"
        return self._refusal(request, place, reason, turned_away=turned_away)

    def _refusal(
        self, request: "_Request", place: int, reason: str | None, *, turned_away: bool = False
    ) -> GatewayError:
        """Return the refusal of a request that has, or would have, this place; it says when to come again.

        That is when what waits now should be gone: who comes then finds room. One that an engine has just
        `turned_away` did not end for want of room, whatever the other engines look like.
        """
        left = self._seconds_left(place)
        error: GatewayError
        if self._upstreams.is_ready_for(request.model):
            seconds = retry_after(self._seconds_left(len(self._shares) + 1))
            kind, what = (
                (NotReady, "The engine did not take the request") if turned_away else (Overloaded, "The engine is full")
            )
            because = f" ({reason})" if reason else ""
            error = kind(f"{what}{because}. Try again in {seconds} seconds.", retry_after=seconds)
        else:
            error = self._upstreams.not_ready(reason)
        error.headers["x-queue-place"] = str(place)
        if left is not None:
            error.headers["x-queue-seconds-left"] = f"{left:.0f}"
        return error

    def _seconds_left(self, place: int) -> float | None:
        if self._upstreams.ready:
            return self._pace.seconds_for(place)
        return self._upstreams.seconds_left()

    def _limit(self) -> float:
        limits = [self._capacity.most(engine) for engine in self._upstreams.engines if engine.takes_requests]
        return sum(math.inf if limit is None else limit for limit in limits)


@dataclass(slots=True, eq=False)
class _Request(Turn):
    exchange: Exchange
    generation: Generation
    # What it has waited for; only those that wait have it.
    called: "asyncio.Future[Place | GatewayError]" = field(init=False)


class Place:
    """A place at an engine, for as long as its context lasts."""

    __slots__ = ("_admission", "began_at", "engine", "request")

    def __init__(self, admission: Admission, engine: Engine, request: _Request) -> None:
        self._admission = admission
        self.engine = engine
        self.request = request
        self.began_at = time.perf_counter()

    def __enter__(self) -> Engine:
        return self.engine

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self, error)
