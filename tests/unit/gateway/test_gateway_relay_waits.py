"""Waits that end: by time, by a reason from outside, by both at once, and by nobody."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from gateway.errors import ClientDisconnected, ShuttingDown
from gateway.relay.interruptions import InFlight
from gateway.relay.patience import Patience


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


class Client:
    """One that leaves when it is told to, and of whom the server tells."""

    def __init__(self) -> None:
        self._call: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Take what is to be called."""
        self._call = call

    def write(self, _: bytes) -> bool:
        """Take nothing."""
        return False

    def leave(self) -> None:
        """Leave."""
        if self._call:
            self._call()


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run on the loop of production, whose clock is coarse."""

    async def body() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


def test_patience_ends_and_can_be_used_again() -> None:
    async def main() -> None:
        patience = Patience()
        for seconds in (0.03, 0.01, 0.02):
            with pytest.raises(TimeoutError):
                await patience.wait(never(), seconds)
            assert await patience.wait(asyncio.sleep(0, "done"), 1) == "done"
        patience.close()
        assert this_task().cancelling() == 0
        await asyncio.sleep(0.03)

    run(main)


def test_patience_does_not_fire_between_waits() -> None:
    async def main() -> None:
        patience = Patience()
        await patience.wait(asyncio.sleep(0), 0.01)
        await asyncio.sleep(0.03)
        await patience.wait(asyncio.sleep(0.005), 0.05)
        patience.close()

    run(main)


def test_wait_that_is_renewed_ends_so_long_after_that() -> None:
    async def main() -> None:
        patience, loop = Patience(), asyncio.get_running_loop()
        renewed = asyncio.Event()

        def renew() -> None:
            patience.renew(0.05)
            renewed.set()

        loop.call_later(0.02, renew)
        began_at = loop.time()
        with pytest.raises(TimeoutError):
            await patience.wait(never(), 0.04)
        assert renewed.is_set()
        assert loop.time() - began_at >= 0.06
        patience.close()

    run(main)


def test_patience_lets_foreign_cancellation_through() -> None:
    async def main() -> None:
        async def waiting() -> None:
            await Patience().wait(never(), 5)

        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_patience_and_foreign_cancellation_at_once() -> None:
    async def main() -> None:
        patience: Patience

        async def waiting() -> None:
            nonlocal patience
            patience = Patience()
            await patience.wait(never(), 5)

        task = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        patience._expires_at = 0
        patience._look()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


def test_disconnect_interrupts_with_its_reason() -> None:
    async def main() -> None:
        in_flight, client = InFlight(), Client()
        asyncio.get_running_loop().call_later(0.01, client.leave)
        with pytest.raises(ClientDisconnected), in_flight.watch(this_task(), client):
            await never()
        assert this_task().cancelling() == 0
        assert len(in_flight) == 0

    run(main)


def test_disconnect_while_patience_runs_out() -> None:
    async def main() -> None:
        in_flight, patience = InFlight(), Patience()
        asyncio.get_running_loop().call_soon(both, in_flight, patience)
        with pytest.raises(ShuttingDown), in_flight.watch(this_task(), Client()):
            await patience.wait(never(), 5)
        assert this_task().cancelling() == 0
        patience.close()

    def both(in_flight: InFlight, patience: Patience) -> None:
        in_flight.end_all()
        patience._expires_at = 0
        patience._look()

    run(main)


def test_stopped_watch_interrupts_nothing() -> None:
    async def main() -> None:
        in_flight, client = InFlight(), Client()
        with in_flight.watch(this_task(), client) as watch:
            watch.stop()
            client.leave()
            in_flight.end_all()
            await asyncio.sleep(0.01)

    run(main)


def test_first_reason_counts() -> None:
    async def main() -> None:
        in_flight, client = InFlight(), Client()
        asyncio.get_running_loop().call_later(0.01, in_flight.end_all)
        asyncio.get_running_loop().call_later(0.01, client.leave)
        with pytest.raises(ShuttingDown), in_flight.watch(this_task(), client):
            await never()

    run(main)


def test_foreign_cancellation_passes_a_watch() -> None:
    async def main() -> None:
        in_flight = InFlight()

        async def watched() -> None:
            with in_flight.watch(this_task(), Client()):
                await never()

        task = asyncio.create_task(watched())
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(in_flight) == 0

    run(main)
