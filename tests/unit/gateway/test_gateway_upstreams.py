"""Choosing engines."""

import asyncio
import itertools
import time
from collections import Counter

import pytest
from gateway.conversation import conversation_of
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


def talk(*texts: str, system: str = "") -> int:
    """Return what a request of these turns, question and answer in turn, belongs to."""
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return conversation_of({"messages": [{"role": "system", "content": system}, *messages] if system else messages})


@pytest.mark.parametrize("system", ["", "Be short."])
def test_turns_of_a_conversation_are_known_by_its_beginning(system: str) -> None:
    first = talk("Hello", system=system)
    assert (
        first == talk("Hello", "Hi", "How?", system=system) == talk("Hello", "Hi", "Else?", "So", "Why?", system=system)
    )
    assert first != talk("Good morning", system=system)
    assert conversation_of({"prompt": "Hello"}) == 0


def test_long_beginnings_are_told_apart_by_their_ends_and_lengths() -> None:
    text = "word " * 200_000
    long = talk(text)
    assert long == talk(text, "Yes", "Go on")
    assert len({long, talk("A" + text[1:]), talk(text[:-1] + "."), talk(text + "more"), talk(text[:5000])}) == 5


def test_a_conversation_stays_at_its_home_and_homes_are_spread() -> None:
    pool = upstreams(4)
    homes = [pool.pick(any_engine, "", talk(f"question {number}")) for number in range(400)]
    assert homes == [pool.pick(any_engine, "", talk(f"question {number}", "a", "b")) for number in range(400)]
    # 100 are expected, with a deviation of 9: five of them either way.
    assert all(55 < count < 145 for count in Counter(homes).values())
    assert len(set(homes)) == 4


def test_an_engine_that_leaves_takes_only_its_own_conversations_along() -> None:
    pool = upstreams(4)
    before = {number: pool.pick(any_engine, "", talk(str(number))) for number in range(200)}
    gone = pool.engines[2]
    gone.state = State.STALLED
    after = {number: pool.pick(any_engine, "", talk(str(number))) for number in range(200)}
    assert all(before[number] is gone or before[number] is after[number] for number in before)
    assert gone not in after.values()


@pytest.mark.parametrize(("least", "most"), [(0, 2), (3, 5), (40, 50)])
def test_a_home_that_has_much_more_to_do_is_passed_over(least: int, most: int) -> None:
    pool = upstreams(2)
    conversation = talk("Hello")
    home = pool.pick(any_engine, "", conversation)
    assert home is not None
    [other] = [engine for engine in pool.engines if engine is not home]
    other.work = OwnWork(least)
    home.work = OwnWork(most)
    assert pool.pick(any_engine, "", conversation) is home
    home.work = OwnWork(most + 1)
    assert pool.pick(any_engine, "", conversation) is other
    assert pool.pick(lambda engine: engine is home, "", conversation) is home
