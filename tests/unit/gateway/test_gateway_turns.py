"""Whose turn it is: fair between clients by work done; within a client, who came first."""

import asyncio
from types import SimpleNamespace

import pytest
from gateway.admission.shares import SHARED_SECONDS
from gateway.upstreams import State

from tests.fakes.crowd import GENERATION, Crowd, Engines, admission_of, ready, request, say_nothing, settled


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


async def test_who_was_idle_has_saved_next_to_nothing_up() -> None:
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


async def test_debts_of_who_left_for_a_moment_are_kept() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=1))
    await crowd.send("other", 12)
    for _ in range(6):
        # Asks again only when it has its answer, and so has never anything waiting for long.
        await crowd.send("one-by-one")
        await crowd.end(2)
    assert crowd.begun.count("one-by-one") <= crowd.begun.count("other")
    await crowd.finish()


async def test_who_asks_for_less_than_its_part_has_three_at_once_before_who_takes_the_rest() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=8))
    await crowd.send("greedy", 60)
    for _ in range(4):
        await crowd.end(8)
        before = len(crowd.begun)
        await crowd.send("polite", 3)
        await crowd.end(3)
        assert crowd.begun[before:] == ["polite"] * 3
    await crowd.finish()


async def test_choices_take_places_and_a_request_of_many_holds_nobody_up() -> None:
    engines = ready()
    crowd = Crowd(admission_of(engines, in_flight=6))
    await crowd.send("a", 3, choices=4)
    assert (crowd.begun, engines.engines[0].outstanding) == (["a", "a"], 8), "the last room is taken however small"
    await crowd.send("b")
    await crowd.end()
    assert (crowd.begun[2:], engines.engines[0].outstanding) == (["b", "a"], 9), "nobody waits for four at once"
    await crowd.finish()
    assert engines.engines[0].outstanding == 0


async def test_last_places_are_left_by_who_has_more_than_its_part_while_there_are_others() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=16))
    await crowd.send("greedy", 16)
    assert len(crowd.begun) == 16, "alone it has all"
    await crowd.end(16)
    await crowd.send("polite")
    await crowd.send("greedy", 16)
    assert len(crowd.begun) == 16 + 14, "two are kept free"
    await crowd.send("polite")
    assert crowd.begun[-1] == "polite"
    await crowd.finish()


async def test_who_has_a_few_at_once_is_not_who_takes_the_rest() -> None:
    crowd = Crowd(admission_of(ready(), in_flight=16))
    for number in range(8):
        await crowd.send(f"polite-{number}")
    await crowd.send("greedy", 6)
    # Nine clients have 14 places: two are more than an equal part, but no more than half of the greedy one's.
    await crowd.send("polite-0", 2)
    await crowd.send("greedy")
    assert crowd.begun[14:] == ["polite-0"] * 2
    await crowd.finish()


async def test_others_are_there_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("gateway.admission.shares.time", SimpleNamespace(monotonic=lambda: now))
    crowd = Crowd(admission_of(ready(), in_flight=16))
    await crowd.send("other")
    await crowd.end()
    now += SHARED_SECONDS - 1
    await crowd.send("greedy", 20)
    assert crowd.begun.count("greedy") == 14
    now += 1
    crowd.admission.wake()
    await settled()
    assert crowd.begun.count("greedy") == 16
    await crowd.finish()
