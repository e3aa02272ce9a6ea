"""Choosing engines."""

import asyncio
import time

import pytest
from gateway.errors import ShuttingDown
from gateway.upstreams import Engine, OwnWork, Start, State, Upstreams


def upstreams(count: int) -> Upstreams:
    pool = Upstreams(tuple(f"http://engine-{number}:8000" for number in range(count)))
    for engine in pool.engines:
        engine.state = State.READY
    return pool


def any_engine(_engine: Engine) -> bool:
    return True


def test_least_outstanding_work_is_picked() -> None:
    pool = upstreams(3)
    first, second, third = pool.engines
    first.work, second.work, third.work = OwnWork(2), OwnWork(1), OwnWork(3)
    assert pool.pick(any_engine) is second
    second.note_connect_fault()
    assert pool.pick(any_engine) is first


def test_equal_engines_take_turns() -> None:
    pool = upstreams(3)
    picked = [engine.label for _ in range(6) if (engine := pool.pick(any_engine))]
    assert sorted(picked) == sorted([engine.label for engine in pool.engines] * 2)


@pytest.mark.parametrize("state", State)
def test_only_proved_engines_are_picked(state: State) -> None:
    pool = upstreams(1)
    pool.engines[0].state = state
    if state in {State.READY, State.BUSY}:
        assert pool.pick(any_engine) is pool.engines[0]
    else:
        assert pool.pick(any_engine) is None
        refused = pool.not_ready()
        assert state.value in refused.message
        assert "engine-0" not in refused.message


def test_suspect_engine_takes_nothing_and_is_called_unreachable() -> None:
    pool = upstreams(1)
    pool.engines[0].note_connect_fault()
    assert not pool.ready
    assert pool.pick(any_engine) is None
    assert "unreachable" in pool.not_ready().message


@pytest.mark.parametrize(
    ("usual", "elapsed", "retry_after"), [(None, 1, 5), (30.0, 9.5, 21), (0.5, 0.1, 1), (600.0, 1, 60), (30.0, 40, 5)]
)
def test_retry_after_is_what_earlier_starts_promise(usual: float | None, elapsed: float, retry_after: int) -> None:
    pool = upstreams(1)
    pool.engines[0].state = State.LOADING
    pool.engines[0].start = Start(time.time() - elapsed, usual)
    refusal = pool.not_ready()
    assert refusal.headers["retry-after"] == str(retry_after)
    assert f"{retry_after} seconds" in refusal.message


def test_nothing_is_picked_while_stopping() -> None:
    pool = upstreams(2)
    pool.close()
    with pytest.raises(ShuttingDown):
        pool.pick(any_engine)
    assert not pool.ready


def test_engine_without_room_is_passed_over() -> None:
    pool = upstreams(2)
    full, free = pool.engines
    free.work = OwnWork(9)
    assert pool.pick(lambda engine: engine is not full) is free
    assert pool.pick(lambda _: False) is None


async def test_a_look_that_was_under_way_is_not_the_next_one() -> None:
    engine = upstreams(1).engines[0]
    engine.begin_look()
    waiting = asyncio.create_task(engine.next_look(5))
    await asyncio.sleep(0)
    engine.end_look()
    await asyncio.sleep(0)
    assert not waiting.done()
    engine.begin_look()
    engine.end_look()
    await asyncio.wait_for(waiting, 1)


async def test_a_look_that_never_ends_is_not_waited_for() -> None:
    await asyncio.wait_for(upstreams(1).engines[0].next_look(0.01), 1)
