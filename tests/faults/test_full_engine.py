"""Engines that are full: who comes then waits in an order that is fair, and every place comes free again."""

import asyncio
import signal

import httpx
import pytest

from tests.fakes.engine import Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    check_retry_after,
    error_of,
    eventually,
    last_error,
    running_gateway,
)

FULL = {"GATEWAY_QUEUE_SIZE": "100", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20", "GATEWAY_MAX_IN_FLIGHT": "2"}


class Held:
    """An engine whose answers are held back, each until it is let go."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self._gate = asyncio.Semaphore(0)
        engine.script = self._hold

    def let_go(self, number: int = 1) -> None:
        """Let so many be answered."""
        for _ in range(number):
            self._gate.release()

    async def _hold(self, call: Call) -> None:
        await self._gate.acquire()
        await answer(call)

    @property
    def asked(self) -> list[int]:
        """The seeds of what it was given, in order."""
        return [call.json["seed"] for call in self.engine.calls]


@pytest.fixture
async def held(engine: FakeEngine) -> Held:
    return Held(engine)


def at(address: str) -> dict[str, str]:
    return {"x-forwarded-for": address}


def waiting(gateway: RunningGateway) -> int:
    return len(gateway.parts.admission)


async def ask(gateway: RunningGateway, held: Held, address: str, *seeds: int) -> list[asyncio.Task[httpx.Response]]:
    """Send requests of one client, one after the other, each told by its seed."""
    asked = []
    for seed in seeds:
        before = len(held.engine.calls) + waiting(gateway)
        body = {**(STREAMED if seed % 2 else CHAT), "seed": seed}
        asked.append(asyncio.create_task(gateway.chat(body, headers=at(address))))
        await eventually(lambda before=before: len(held.engine.calls) + waiting(gateway) == before + 1)
    return asked


async def test_engine_has_no_more_than_it_may_and_the_rest_takes_turns(held: Held) -> None:
    async with running_gateway(held.engine, **FULL) as gateway:
        asked = await ask(gateway, held, "203.0.113.1", *range(8))
        asked += await ask(gateway, held, "203.0.113.2", 100, 101)
        assert held.asked == [0, 1]
        assert waiting(gateway) == await gateway.metric("gateway_queue_depth") == 8
        for number in range(3, 9):
            held.let_go()
            await eventually(lambda number=number: len(held.asked) == number)
        # In order within a client, and the other one's few do not wait for all of the first one's.
        assert held.asked == [0, 1, 100, 2, 101, 3, 4, 5]
        held.let_go(4)
        assert {answered.status_code for answered in await asyncio.gather(*asked)} == {200}
        assert await gateway.metric("gateway_queue_wait_seconds_count") == 8
        await assert_quiescent(gateway, held.engine)


async def test_who_streams_hears_its_place_and_the_time_that_is_left(held: Held) -> None:
    async with running_gateway(held.engine, **FULL, GATEWAY_HEARTBEAT_SECONDS="0.3") as gateway:
        held.let_go()
        await gateway.chat({**CHAT, "seed": 0})
        [first, second] = await ask(gateway, held, "203.0.113.1", 2, 4)
        waits = await gateway.raw({**STREAMED, "seed": 6})
        assert "200 OK" in await waits.head()
        assert b": waiting place=1 seconds_left=" in await waits.reader.readuntil(b"\n\n")
        held.let_go(3)
        await waits.reader.readuntil(b"[DONE]\n\n")
        await asyncio.gather(first, second)
        waits.close()
        await assert_quiescent(gateway, held.engine)


async def test_place_is_told_soon_and_not_only_when_silence_gets_dangerous(held: Held) -> None:
    async with running_gateway(held.engine, **FULL, GATEWAY_HEARTBEAT_SECONDS="3600") as gateway:
        asked = await ask(gateway, held, "203.0.113.1", 0, 2, 4)
        waits = await gateway.raw({**STREAMED, "seed": 6})
        # What is over sooner keeps its status open.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waits.reader.read(1), 0.5)
        async with asyncio.timeout(10):
            assert "200 OK" in await waits.head()
            assert b": waiting place=1\n\n" in await waits.reader.readuntil(b"\n\n")
        held.let_go(4)
        await waits.reader.readuntil(b"[DONE]\n\n")
        await asyncio.gather(*asked)
        waits.close()
        await assert_quiescent(gateway, held.engine)


async def test_full_queue_refuses_the_greedy_and_makes_room_for_others(held: Held) -> None:
    async with running_gateway(held.engine, **FULL | {"GATEWAY_QUEUE_SIZE": "3"}) as gateway:
        *asked, last = await ask(gateway, held, "203.0.113.1", 0, 2, 4, 6, 8)
        excess = await gateway.chat({**CHAT, "seed": 10}, headers=at("203.0.113.1"))
        polite = asyncio.create_task(gateway.chat({**CHAT, "seed": 100}, headers=at("203.0.113.2")))
        for refused in (excess, await last):
            assert refused.status_code == 503
            assert error_of(refused)["code"] == "overloaded"
            assert int(refused.headers["x-queue-place"]) >= 3
            check_retry_after(refused)
        held.let_go(5)
        assert (await polite).status_code == 200
        assert {answered.status_code for answered in await asyncio.gather(*asked)} == {200}
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="overloaded") == 2
        await assert_quiescent(gateway, held.engine)


async def test_wait_that_is_too_long_says_where_it_stood(held: Held) -> None:
    room = FULL | {"GATEWAY_QUEUE_TIMEOUT_SECONDS": "0.3"}
    async with running_gateway(held.engine, **room, GATEWAY_HEARTBEAT_SECONDS="0.1") as gateway:
        asked = await ask(gateway, held, "203.0.113.1", 0, 2)
        streamed, whole = await asyncio.gather(gateway.chat(STREAMED), gateway.chat())
        assert whole.status_code == 503
        assert error_of(whole)["code"] == last_error(streamed.content)["code"] == "overloaded"
        assert whole.headers["x-queue-place"] in {"1", "2"}
        check_retry_after(whole)
        held.let_go(2)
        await asyncio.gather(*asked)
        await assert_quiescent(gateway, held.engine)


async def test_who_leaves_frees_place_and_queue(engine: FakeEngine) -> None:
    engine.script = hold
    async with running_gateway(engine, **FULL) as gateway:
        clients = []
        for number in range(5):
            clients.append(await gateway.raw(STREAMED if number % 2 else CHAT))
            await eventually(lambda number=number: len(engine.calls) + waiting(gateway) == number + 1)
        clients[3].reset()
        await eventually(lambda: waiting(gateway) == 2)
        # One that runs: the first of those that wait has its place.
        clients[1].close()
        await engine.next_call(3)
        assert waiting(gateway) == 1
        for number in (0, 2, 4):
            clients[number].close()
        await eventually(lambda: waiting(gateway) == 0)
        await assert_quiescent(gateway, engine)


async def test_faults_and_refusals_of_the_engine_free_the_place(engine: FakeEngine) -> None:
    async def refuse(call: Call) -> None:
        call.whole(400, b'{"error":{"message":"no","type":"x","param":null,"code":400}}')

    async def cut(call: Call) -> None:
        call.reset()

    async with running_gateway(engine, **FULL | {"GATEWAY_MAX_IN_FLIGHT": "1"}) as gateway:
        for script, status in ((refuse, 400), (cut, 502), (after_events(1, Call.reset), 200), (answer, 200)):
            engine.script = script
            answers = await asyncio.gather(*(gateway.chat(STREAMED) for _ in range(3)))
            assert {answered.status_code for answered in answers} <= {status, 502}
        await assert_quiescent(gateway, engine)


async def test_restart_lets_the_queue_go_in_turn_and_never_too_many(engine: FakeEngine) -> None:
    held = Held(engine)
    async with running_gateway(engine, **FULL) as gateway:
        await engine.stop()
        await gateway.becomes("unreachable")
        asked = await ask(gateway, held, "203.0.113.1", *range(0, 12, 2))
        asked += await ask(gateway, held, "203.0.113.2", 100)
        await engine.start()
        await eventually(lambda: len(held.asked) == 2)
        # One of each: the system may accept their connections in either order.
        assert sorted(held.asked) == [0, 100]
        assert gateway.parts.upstreams.engines[0].outstanding == 2
        held.let_go(7)
        assert {answered.status_code for answered in await asyncio.gather(*asked)} == {200}
        await assert_quiescent(gateway, engine)


async def test_crash_of_a_full_engine_loses_none_that_wait(engine: FakeEngine) -> None:
    engine.script = hold
    async with running_gateway(engine, **FULL) as gateway:
        running = [asyncio.create_task(gateway.chat()) for _ in range(2)]
        await engine.next_call(2)
        asked = [asyncio.create_task(gateway.chat()) for _ in range(6)]
        await eventually(lambda: waiting(gateway) == 6)
        await engine.stop()
        assert {answered.status_code for answered in await asyncio.gather(*running)} == {502}
        engine.script = answer
        await eventually(lambda: waiting(gateway) == 6)
        await engine.start()
        assert {answered.status_code for answered in await asyncio.gather(*asked)} == {200}
        await assert_quiescent(gateway, engine)


async def test_stopping_answers_what_runs_and_refuses_what_waits(held: Held) -> None:
    async with running_gateway(held.engine, **FULL) as gateway:
        asked = await ask(gateway, held, "203.0.113.1", 0, 2, 4, 6)
        gateway.server.handle_exit(signal.SIGTERM, None)
        for refused in await asyncio.gather(*asked[2:]):
            assert error_of(refused)["code"] == "shutting_down"
        held.let_go(2)
        assert [answered.status_code for answered in await asyncio.gather(*asked[:2])] == [200, 200]
        assert len(held.asked) == 2


async def test_learns_what_the_engine_runs_by_its_own_figures(engine: FakeEngine) -> None:
    """The engine runs 40: more than are given at first; as soon as some wait in it, no more are given."""
    runs, busy = 40, asyncio.Semaphore(0)

    async def script(call: Call) -> None:
        engine.waiting, engine.fixed_running = max(0.0, engine.running - runs), min(engine.running, float(runs))
        await busy.acquire()
        await answer(call)
        engine.waiting = max(0.0, engine.running - 1 - runs)

    engine.script = script
    room = {"GATEWAY_QUEUE_SIZE": "100", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20", "GATEWAY_MAX_IN_FLIGHT": ""}
    async with running_gateway(engine, **room) as gateway:
        assert await gateway.metric("gateway_in_flight_limit") == 16
        asked = [asyncio.create_task(gateway.chat()) for _ in range(90)]
        await eventually(lambda: engine.waiting > 0)
        for _ in range(3):
            await gateway.parts.upstreams.engines[0].next_look(5)
        # Doubled twice, it was found full; until some are answered the surplus stays where it is.
        assert runs < await gateway.metric("gateway_in_flight_limit") <= 64
        for _ in range(40):
            busy.release()
        await eventually(lambda: engine.running <= limit_of(gateway))
        assert waiting(gateway) > 0
        for _ in range(100):
            busy.release()
        assert {answered.status_code for answered in await asyncio.gather(*asked)} == {200}
        engine.fixed_running = 0.0
        await assert_quiescent(gateway, engine)


def limit_of(gateway: RunningGateway) -> float:
    return gateway.parts.admission._limit()
