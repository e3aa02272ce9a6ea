"""Places at engines: how many there are, and that each is given back, however its holder ends."""

import asyncio
import gc
import weakref

import pytest
from gateway.errors import NotReady, ShuttingDown
from gateway.schemas import Exchange
from gateway.upstreams import State

from tests.fakes.crowd import GENERATION, Crowd, Engines, admission_of, ready, request, say_nothing, settled


class Tracked(Exchange):
    """A record that can be looked for."""

    __slots__ = ("__weakref__",)


async def test_no_more_run_than_may_and_the_next_begins_when_one_ends() -> None:
    engines = ready()
    crowd = Crowd(admission_of(engines, in_flight=2))
    await crowd.send("a", 5)
    assert (len(crowd.begun), len(crowd.admission), engines.engines[0].outstanding) == (2, 3, 2)
    await crowd.end()
    assert (len(crowd.begun), len(crowd.admission), engines.engines[0].outstanding) == (3, 2, 2)
    await crowd.finish()
    assert (len(crowd.over), len(crowd.admission), engines.engines[0].outstanding) == (5, 0, 0)


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
