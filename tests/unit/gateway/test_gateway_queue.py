"""The queue's bounds, and what those who wait in it or are refused hear of their place and time."""

import asyncio
from types import SimpleNamespace

import pytest
from gateway.errors import NotReady, Overloaded

from tests.fakes.crowd import GENERATION, Crowd, Engines, admission_of, ready, request, say_nothing
from tests.fakes.gateway import check_retry_after


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


async def test_client_that_cannot_be_told_gives_its_place_up() -> None:
    admission = admission_of(Engines(), tell_seconds=0.01)

    async def gone(_place: int, _seconds_left: float | None) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await admission.admit(request(1.0), GENERATION, gone)
    assert len(admission) == 0
