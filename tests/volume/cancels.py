"""Many clients that leave, and what is left of them: `python -m tests.volume.cancels 1000`."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.fakes.engine import Call, FakeEngine, after_events, hold
from tests.fakes.gateway import CHAT, STREAMED, RawClient, RunningGateway, assert_quiescent, eventually, running_gateway

AT_ONCE = 50
CONFIRMED_WITHIN_SECONDS = 15
_ESTABLISHED = "01"


async def half_an_answer(call: Call) -> None:
    """Begin a whole answer and say no more."""
    call.head(headers={"content-type": "application/json"})
    call.chunk(b'{"id":')
    await hold(call)


# When a client leaves: what it asked for, how far the engine gets, and whether the client sees an event first.
MOMENTS = {
    "before the headers": (STREAMED, hold, False),
    "during prefill": (STREAMED, after_events(0, hold), False),
    "mid-stream": (STREAMED, after_events(3, hold), True),
    "before a whole answer": (CHAT, hold, False),
    "in a whole answer": (CHAT, half_an_answer, False),
}
WAYS: tuple[Callable[[RawClient], None], ...] = (RawClient.close, RawClient.reset)


@dataclass(frozen=True, slots=True)
class Held:
    """What this process holds, in which client, gateway and engine live: both ends of every connection."""

    files: int
    established: int
    tasks: int

    def within(self, before: "Held", tolerance: int) -> bool:
        """Whether no more is held than before; the pools' idle connections to probed engines come and go."""
        return (
            self.files <= before.files + tolerance
            and self.established <= before.established + tolerance
            and self.tasks <= before.tasks + tolerance
        )


def held() -> Held:
    """Count open files, established connections and tasks."""
    files = list(Path("/proc/self/fd").iterdir())
    inodes = set()
    for file in files:
        # The folder's own handle is closed by now.
        with suppress(FileNotFoundError):
            inodes.add(os.readlink(file))  # noqa: PTH115  (it names no path)
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]]
    ours = [row for row in rows if row[3] == _ESTABLISHED and f"socket:[{row[9]}]" in inodes]
    return Held(len(files), len(ours), len(asyncio.all_tasks()))


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run brought; `slowest_ms` is the longest time from a client's leaving to the engine's seeing it."""

    cancels: int
    confirmed: int
    unconfirmed: int
    before: Held
    after: Held
    slowest_ms: float
    seconds: float


class Crowd:
    """Clients that ask and leave, each in one of the moments and ways, by its number."""

    def __init__(self, engine: FakeEngine, gateway: RunningGateway) -> None:
        self._gateway = gateway
        self._arrived: dict[str, asyncio.Future[Call]] = {}
        self.slowest_seconds = 0.0
        engine.script = self._play

    async def _play(self, call: Call) -> None:
        number = call.json["user"]
        self._arrived[number].set_result(call)
        await self._moment(int(number))[1](call)

    def _moment(self, number: int) -> tuple[dict[str, object], Callable[[Call], object], bool]:
        return list(MOMENTS.values())[number % len(MOMENTS)]  # type: ignore[return-value]

    async def come_and_leave(self, number: int) -> None:
        """Ask, wait for the moment, leave, and wait until the engine has seen it."""
        body, _, sees_event = self._moment(number)
        arrived = self._arrived[str(number)] = asyncio.get_running_loop().create_future()
        client = await self._gateway.raw({**body, "user": str(number)})
        call = await asyncio.wait_for(arrived, 10)
        if sees_event:
            await client.reader.readuntil(b"data: ")
        left_at = time.perf_counter()
        WAYS[number // len(MOMENTS) % len(WAYS)](client)
        await asyncio.wait_for(call.disconnected.wait(), 10)
        self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - left_at)


async def leave(cancels: int) -> Figures:
    """Let so many clients ask and leave, and look at what is left once all is quiet."""
    async with FakeEngine() as engine, running_gateway(engine) as gateway:
        await assert_quiescent(gateway, engine)
        before, started_at = held(), time.perf_counter()
        crowd = Crowd(engine, gateway)
        for start in range(0, cancels, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, cancels))
            await asyncio.gather(*(crowd.come_and_leave(number) for number in numbers))
        seconds = time.perf_counter() - started_at
        assert engine.running == 0
        known = gateway.parts.upstreams.engines[0]
        await eventually(lambda: not known.unsettled_aborts, CONFIRMED_WITHIN_SECONDS)
        await assert_quiescent(gateway, engine)
        disconnected = await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected")
        assert disconnected == cancels
        return Figures(
            cancels=cancels,
            confirmed=int(await gateway.metric("gateway_aborts_total", confirmed="yes")),
            unconfirmed=int(await gateway.metric("gateway_aborts_total", confirmed="no")),
            before=before,
            after=held(),
            slowest_ms=round(crowd.slowest_seconds * 1000, 1),
            seconds=round(seconds, 2),
        )


if __name__ == "__main__":
    print(uvloop.run(leave(int(sys.argv[1]))))
