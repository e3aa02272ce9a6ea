"""The waiting room's order and bounds, without a gateway around it."""

import asyncio

import pytest
from gateway.admission import WaitingRoom
from gateway.errors import NotReady
from gateway.metrics import Metrics
from gateway.schemas import Exchange
from gateway.upstreams import State, Upstreams
from prometheus_client import CollectorRegistry


class Engines(Upstreams):
    """One engine that comes and goes."""

    def __init__(self) -> None:
        super().__init__(("http://engine:8000",))

    def turn(self, state: State) -> None:
        """Put the engine into a state."""
        self.engines[0].state = state


def room_of(engines: Engines, size: int = 100, timeout_seconds: float = 60, tell_seconds: float = 60) -> WaitingRoom:
    return WaitingRoom(
        engines, Metrics(CollectorRegistry()), size=size, timeout_seconds=timeout_seconds, tell_seconds=tell_seconds
    )


def request(received_at: float) -> Exchange:
    return Exchange("id", "engine-id", "chat_completions", "POST", received_at)


async def say_nothing(_place: int, _seconds_left: float | None) -> None:
    pass


async def test_who_came_first_goes_first_wherever_it_entered() -> None:
    engines = Engines()
    room = room_of(engines)
    gone: list[float] = []

    async def wait(received_at: float) -> None:
        await room.wait(request(received_at), say_nothing)
        gone.append(received_at)

    async with asyncio.TaskGroup() as tasks:
        for received_at in (3.0, 1.0, 4.0, 2.0):
            tasks.create_task(wait(received_at))
        await asyncio.sleep(0)
        assert len(room) == 4
        room.wake()
        await asyncio.sleep(0)
        assert gone == [], "nobody goes while no engine takes requests"
        engines.turn(State.READY)
        room.wake()
        assert len(room) == 0
    assert gone == [1.0, 2.0, 3.0, 4.0]


async def test_who_comes_back_has_its_old_time() -> None:
    engines = Engines()
    room = room_of(engines, timeout_seconds=0.05)
    exchange = request(1.0)
    waiting = asyncio.create_task(room.wait(exchange, say_nothing))
    await asyncio.sleep(0)
    engines.turn(State.READY)
    room.wake()
    await waiting
    entered_at = exchange.queue_entered_at
    engines.turn(State.LOADING)
    with pytest.raises(NotReady, match=r"has waited 0\.05 s"):
        await room.wait(exchange, say_nothing)
    assert exchange.queue_entered_at == entered_at
    assert exchange.queued_seconds >= 0.05


async def test_places_move_up() -> None:
    room = room_of(Engines(), tell_seconds=0.01)
    behind, moved_up = asyncio.Event(), asyncio.Event()

    async def hear(place: int, _seconds_left: float | None) -> None:
        {2: behind, 1: moved_up}[place].set()

    first = asyncio.create_task(room.wait(request(1.0), say_nothing))
    second = asyncio.create_task(room.wait(request(2.0), hear))
    await asyncio.wait_for(behind.wait(), 5)
    assert not moved_up.is_set()
    first.cancel()
    await asyncio.wait_for(moved_up.wait(), 5)
    assert len(room) == 1
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert len(room) == 0


@pytest.mark.parametrize("size", [0, 2])
async def test_full_is_full(size: int) -> None:
    room = room_of(Engines(), size=size)
    waiting = [asyncio.create_task(room.wait(request(number), say_nothing)) for number in range(size)]
    await asyncio.sleep(0)
    with pytest.raises(NotReady):
        await room.wait(request(9.0), say_nothing)
    assert len(room) == size
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_comes_back_finds_a_place_in_a_full_room() -> None:
    engines = Engines()
    room = room_of(engines, size=1)
    first = request(1.0)
    engines.turn(State.READY)
    await room.wait(first, say_nothing)
    engines.turn(State.LOADING)
    newcomer = asyncio.create_task(room.wait(request(2.0), say_nothing))
    await asyncio.sleep(0)
    back = asyncio.create_task(room.wait(first, say_nothing))
    await asyncio.sleep(0)
    assert len(room) == 2
    engines.turn(State.READY)
    room.wake()
    await asyncio.gather(newcomer, back)


async def test_client_that_cannot_be_told_gives_its_place_up() -> None:
    room = room_of(Engines(), tell_seconds=0.01)

    async def gone(_place: int, _seconds_left: float | None) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await room.wait(request(1.0), gone)
    assert len(room) == 0
