"""The same as the programs beside this file, in a size for every day."""

import asyncio

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import assert_quiescent, running_gateway
from tests.volume.cancels import leave
from tests.volume.refusals import HUGE_BYTES, ask_huge
from tests.volume.streams import compare

# What the gateway holds to probed engines comes and goes by a connection or two; a leak would be one for each cancel.
TOLERANCE = 8


async def test_streams_arrive_byte_for_byte_however_they_are_cut() -> None:
    figures = await compare(100)
    assert figures.different == 0
    assert figures.reads > figures.streams * 2


async def test_cancels_leave_no_slot_socket_or_task_and_are_all_confirmed() -> None:
    figures = await leave(200)
    assert (figures.confirmed, figures.unconfirmed) == (200, 0)
    assert figures.after.within(figures.before, TOLERANCE)


@pytest.mark.parametrize("chunked", [False, True])
async def test_100_megabytes_are_refused_before_they_are_there(*, chunked: bool) -> None:
    async with FakeEngine() as engine, running_gateway(engine) as gateway:
        refused = await asyncio.to_thread(ask_huge, gateway.port, chunked=chunked)
        assert (refused.status, refused.code) == (413, "request_too_large")
        assert refused.sent_bytes < HUGE_BYTES / 2
        assert engine.calls == []
        await assert_quiescent(gateway, engine)
