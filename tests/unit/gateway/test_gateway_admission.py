"""Admission's order, bounds and refusals, without a gateway around it."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

import pytest
from gateway.admission import Admission, NoLimit, NumberInAll
from gateway.errors import NotReady, Overloaded, ShuttingDown
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Generation
from gateway.upstreams import State, Upstreams
from prometheus_client import CollectorRegistry

from tests.fakes.gateway import check_retry_after

GENERATION = Generation("/v1/chat/completions", b"x" * 39, stream=True, hide_usage=True, max_tokens=45)


class Engines(Upstreams):
    """One engine that comes and goes."""

    def __init__(self) -> None:
        super().__init__(("http://engine:8000",))

    def turn(self, state: State) -> None:
        """Put the engine into a state."""
        self.engines[0].state = state


def admission_of(
    engines: Engines,
    size: int = 100,
    timeout_seconds: float = 60,
    tell_seconds: float = 60,
    in_flight: int | None = None,
) -> Admission:
    return Admission(
        engines,
        Metrics(CollectorRegistry()),
        NumberInAll(in_flight) if in_flight else NoLimit(),
        size=size,
        timeout_seconds=timeout_seconds,
        tell_seconds=tell_seconds,
    )


def request(received_at: float, client: str = "192.0.2.1") -> Exchange:
    exchange = Exchange("id", "engine-id", "chat_completions", "POST", received_at)
    exchange.client = client
    return exchange


async def say_nothing(_place: int, _seconds_left: float | None) -> None:
    pass


class Tracked(Exchange):
    """A record that can be looked for."""

    __slots__ = ("__weakref__",)


class Crowd:
    """Requests that ask to be admitted, each on its own task; `begun` names those that were, in order."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.begun: list[str] = []
        self.over: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.may_end = asyncio.Semaphore(0)
        self._number = 0

    async def send(self, client: str, number: int = 1) -> None:
        """Let a client ask so many times, and let all of that reach admission."""
        for _ in range(number):
            self._number += 1
            exchange = request(float(self._number), client)
            self.tasks.append(asyncio.create_task(self._ask(exchange, client)))
        await settled()

    async def end(self, number: int = 1) -> None:
        """Let so many of those that were begun come to their end."""
        for _ in range(number):
            self.may_end.release()
            await settled()

    async def finish(self) -> None:
        """Let all come to their end."""
        await self.end(len(self.tasks))
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _ask(self, exchange: Exchange, client: str) -> None:
        with await self.admission.admit(exchange, GENERATION, say_nothing):
            self.begun.append(client)
            await self.may_end.acquire()
            exchange.engine_answered_at = 1.0
            # What was expected: 10 tokens of prompt and 45 of answer.
            exchange.prompt_tokens, exchange.completion_tokens = 10, 45
            self.over.append(client)


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def ready() -> Engines:
    engines = Engines()
    engines.turn(State.READY)
    return engines


async def test_who_came_first_of_a_client_goes_first_wherever_it_entered() -> None:
    engines = Engines()
    admission = admission_of(engines)
    gone: list[float] = []

    async def wait(received_at: float) -> None:
        with await admission.admit(request(received_at), GENERATION, say_nothing):
            gone.append(received_at)

    async with asyncio.TaskGroup() as tasks:
        for received_at in (3.0, 1.0, 4.0, 2.0):
            tasks.create_task(wait(received_at))
        await asyncio.sleep(0)
        assert len(admission) == 4
        admission.wake()
        await asyncio.sleep(0)
        assert gone == [], "nobody goes while no engine takes requests"
        engines.turn(State.READY)
        admission.wake()
        assert len(admission) == 0
    assert gone == [1.0, 2.0, 3.0, 4.0]
    assert engines.engines[0].outstanding == 0


async def test_no_more_run_than_may_and_the_next_begins_when_one_ends() -> None:
    engines = ready()
    crowd = Crowd(admission_of(engines, in_flight=2))
    await crowd.send("a", 5)
    assert (len(crowd.begun), len(crowd.admission), engines.engines[0].outstanding) == (2, 3, 2)
    await crowd.end()
    assert (len(crowd.begun), len(crowd.admission), engines.engines[0].outstanding) == (3, 2, 2)
    await crowd.finish()
    assert (len(crowd.over), len(crowd.admission), engines.engines[0].outstanding) == (5, 0, 0)


async def test_one_with_a_thousand_starves_none_with_one() -> None:
    crowd = Crowd(admission_of(ready(), size=2000, in_flight=4))
    await crowd.send("greedy", 1000)
    for number in range(10):
        await crowd.send(f"polite-{number}")
    await crowd.end(20)
    # Of the first 20 that came to their turn, one in two at least was of somebody else.
    assert sum(client.startswith("polite") for client in crowd.begun[4:24]) == 10
    for task in crowd.tasks:
        task.cancel()
    await asyncio.gather(*crowd.tasks, return_exceptions=True)
    assert len(crowd.admission) == 0


async def test_two_that_always_have_some_waiting_take_turns() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=1))
    await crowd.send("a", 20)
    await crowd.send("b", 10)
    await crowd.end(20)
    assert abs(crowd.begun.count("a") - crowd.begun.count("b")) <= 1
    await crowd.finish()


async def test_work_counts_and_not_requests() -> None:
    admission = admission_of(ready(), in_flight=1, size=1000)
    tokens = {"long": 300, "short": 30}
    done = dict.fromkeys(tokens, 0)

    async def ask(number: int, client: str) -> None:
        exchange = request(float(number), client)
        with await admission.admit(exchange, GENERATION, say_nothing):
            await asyncio.sleep(0)
            exchange.prompt_tokens, exchange.completion_tokens = 10, tokens[client]
            done[client] += tokens[client]
            if sum(done.values()) > 9000:
                for task in tasks:
                    task.cancel()

    tasks = [asyncio.create_task(ask(number, client)) for number in range(400) for client in tokens]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert done["long"] / done["short"] == pytest.approx(1, abs=0.35)
    assert len(admission) == 0


async def test_who_was_idle_has_saved_nothing_up() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=1))
    await crowd.send("idle")
    await crowd.end()
    await crowd.send("busy", 40)
    await crowd.end(20)
    await crowd.send("idle", 10)
    before = len(crowd.begun)
    await crowd.end(10)
    assert 4 <= crowd.begun[before:].count("idle") <= 6
    await crowd.finish()


async def test_full_queue_displaces_the_last_of_who_has_most_waiting() -> None:
    admission = admission_of(ready(), size=4, in_flight=1)
    crowd = Crowd(admission)
    await crowd.send("greedy", 5)
    await crowd.send("polite")
    assert len(admission) == 4
    displaced = crowd.tasks[4].exception()
    assert isinstance(displaced, Overloaded)
    assert displaced.headers["x-queue-place"] == "4"
    check_retry_after(displaced)
    # Its own excess is refused.
    await crowd.send("greedy")
    assert isinstance(crowd.tasks[-1].exception(), Overloaded)
    await crowd.finish()
    assert sorted(crowd.over) == ["greedy"] * 4 + ["polite"]


async def test_full_queue_of_many_clients_refuses_the_newcomer() -> None:
    crowd = Crowd(admission_of(ready(), size=2, in_flight=1))
    for client in ("a", "b", "c", "d"):
        await crowd.send(client)
    refused = crowd.tasks[3].exception()
    assert isinstance(refused, Overloaded)
    assert "2 requests wait already" in refused.message
    assert refused.headers["x-queue-place"] == "3"
    await crowd.finish()
    assert crowd.over == ["a", "b", "c"]


async def test_retry_after_is_the_time_in_which_the_queue_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("gateway.admission.admission.time", SimpleNamespace(perf_counter=lambda: now))
    crowd = Crowd(admission_of(ready(), size=11, in_flight=2, timeout_seconds=600))
    for _ in range(5):
        await crowd.send("a", 2)
        now += 4.0
        await crowd.end(2)
    await crowd.send("a", 2)
    for number in range(11):
        await crowd.send(f"b-{number}")
    # Two at a time, 4 s each: one every 2 s.
    await crowd.send("c")
    refused = crowd.tasks[-1].exception()
    assert isinstance(refused, Overloaded)
    assert refused.headers["retry-after"] == "24"
    assert refused.headers["x-queue-seconds-left"] == "24"
    await crowd.finish()


async def test_who_comes_back_has_its_old_time() -> None:
    engines = Engines()
    admission = admission_of(engines, timeout_seconds=0.05)
    exchange = request(1.0)
    waiting = asyncio.create_task(admission.admit(exchange, GENERATION, say_nothing))
    await asyncio.sleep(0)
    engines.turn(State.READY)
    admission.wake()
    with await waiting:
        pass
    entered_at = exchange.queue_entered_at
    engines.turn(State.LOADING)
    with pytest.raises(NotReady, match=r"has waited 0\.05 s"):
        await admission.admit(exchange, GENERATION, say_nothing)
    assert exchange.queue_entered_at == entered_at
    assert exchange.queued_seconds >= 0.05


async def test_places_move_up() -> None:
    admission = admission_of(Engines(), tell_seconds=0.01)
    behind, moved_up = asyncio.Event(), asyncio.Event()

    async def hear(place: int, _seconds_left: float | None) -> None:
        {2: behind, 1: moved_up}[place].set()

    first = asyncio.create_task(admission.admit(request(1.0), GENERATION, say_nothing))
    second = asyncio.create_task(admission.admit(request(2.0), GENERATION, hear))
    await asyncio.wait_for(behind.wait(), 5)
    assert not moved_up.is_set()
    first.cancel()
    await asyncio.wait_for(moved_up.wait(), 5)
    assert len(admission) == 1
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert len(admission) == 0


async def test_place_told_is_the_place_had() -> None:
    admission = admission_of(Engines(), tell_seconds=0.01)
    told: dict[str, int] = {}

    async def wait(number: int, client: str) -> None:
        name = f"{client}{number}"

        async def hear(place: int, _seconds_left: float | None) -> None:
            told[name] = place

        await admission.admit(request(float(number), client), GENERATION, hear)

    tasks = [asyncio.create_task(wait(number, client)) for number, client in enumerate("aaaab")]
    await asyncio.sleep(0.1)
    assert told == {"a0": 1, "b4": 2, "a1": 3, "a2": 4, "a3": 5}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("size", [0, 2])
async def test_full_is_full(size: int) -> None:
    admission = admission_of(Engines(), size=size)
    waiting = [asyncio.create_task(admission.admit(request(number), GENERATION, say_nothing)) for number in range(size)]
    await asyncio.sleep(0)
    with pytest.raises(NotReady):
        await admission.admit(request(9.0), GENERATION, say_nothing)
    assert len(admission) == size
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_comes_back_finds_a_place_in_a_full_queue() -> None:
    engines = ready()
    admission = admission_of(engines, size=1)
    first = request(1.0)
    with await admission.admit(first, GENERATION, say_nothing):
        first.engine_called_at = 1.0
    first.note_failed_attempt()
    first.queue_left_at = first.queue_entered_at
    engines.turn(State.LOADING)
    newcomer = asyncio.create_task(admission.admit(request(2.0), GENERATION, say_nothing))
    await asyncio.sleep(0)
    first.queue_entered_at = first.queue_left_at = asyncio.get_running_loop().time()
    back = asyncio.create_task(admission.admit(first, GENERATION, say_nothing))
    await asyncio.sleep(0)
    assert len(admission) == 2
    engines.turn(State.READY)
    admission.wake()
    for place in await asyncio.gather(newcomer, back):
        with place:
            pass
    assert engines.engines[0].outstanding == 0


async def test_client_that_cannot_be_told_gives_its_place_up() -> None:
    admission = admission_of(Engines(), tell_seconds=0.01)

    async def gone(_place: int, _seconds_left: float | None) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await admission.admit(request(1.0), GENERATION, gone)
    assert len(admission) == 0


async def test_who_leaves_just_when_its_turn_has_come_gives_the_place_back() -> None:
    engines = ready()
    crowd = Crowd(admission_of(engines, in_flight=1))
    await crowd.send("a", 3)
    crowd.may_end.release()
    # One step: the first has ended and the second has its place, but has not woken up.
    while len(crowd.admission) == 2:  # noqa: ASYNC110  (the one step that matters sends no event)
        await asyncio.sleep(0)
    crowd.tasks[1].cancel()
    await settled()
    assert crowd.begun == ["a", "a"], "the third has the place of the second, which never began"
    assert crowd.tasks[1].cancelled()
    await crowd.finish()
    assert (len(crowd.over), engines.engines[0].outstanding) == (2, 0)


async def test_nothing_is_kept_of_who_was_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admission.shares.MOST_REMEMBERED", 5)
    admission = admission_of(ready(), in_flight=1, tell_seconds=0.001)
    bodies: list[weakref.ref[Exchange]] = []

    async def ask(number: int) -> None:
        exchange = Tracked(str(number), "e", "chat_completions", "POST", float(number))
        exchange.client = f"client-{number}"
        bodies.append(weakref.ref(exchange))
        with await admission.admit(exchange, GENERATION, say_nothing):
            await asyncio.sleep(0.002)
            exchange.completion_tokens = 100

    await asyncio.gather(*(ask(number) for number in range(50)))
    gc.collect()
    assert [body for body in bodies if body() is not None] == []
    assert len(admission._shares._shares) <= 5
    assert not admission._shares._order


async def test_debts_of_who_left_for_a_moment_are_kept() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=1))
    await crowd.send("other", 12)
    for _ in range(6):
        # Asks again only when it has its answer, and so has never anything waiting for long.
        await crowd.send("one-by-one")
        await crowd.end(2)
    assert crowd.begun.count("one-by-one") <= crowd.begun.count("other")
    await crowd.finish()


async def test_stopping_lets_nobody_begin() -> None:
    engines = ready()
    crowd = Crowd(admission_of(engines, in_flight=1))
    await crowd.send("a", 3)
    engines.close()
    crowd.admission.wake()
    await settled()
    assert [type(task.exception()) for task in crowd.tasks[1:]] == [ShuttingDown, ShuttingDown]
    await crowd.finish()
    assert crowd.over == ["a"]
