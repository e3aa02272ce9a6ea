"""Events that are passed on without waking their task: in order, for clients that are slow too, and their silence."""

import asyncio
import hashlib
import time
from typing import Any

import pytest
from gateway.upstreams import Answer

from tests.fakes.call import Call
from tests.fakes.engine import DONE, EVENTS, FakeEngine, hold
from tests.fakes.gateway import STREAMED, assert_quiescent, events_in, eventually, last_error, running_gateway

MANY = 20
GAP_SECONDS, IDLE_SECONDS = 0.25, 1.0
# More than the kernel and all buffers on the way hold.
LARGE, TIMES = b"data: " + b"x" * 65_536 + b"\n\n", 200


async def test_only_the_first_and_the_last_event_wake_the_task(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, reads = asyncio.Semaphore(0), 0

    async def in_step(call: Call) -> None:
        call.stream_head()
        for _ in range(MANY):
            call.chunk(EVENTS[0])
            await seen.acquire()
        call.chunk(DONE)
        call.end()

    read = Answer.read

    async def counted(self: Answer, *arguments: Any) -> bytes:
        nonlocal reads
        chunk = await read(self, *arguments)
        reads += 1
        return chunk

    monkeypatch.setattr(Answer, "read", counted)
    engine.script = in_step
    async with running_gateway(engine) as gateway:
        client = await gateway.raw(STREAMED)
        await client.head()
        reads = 0
        for _ in range(MANY):
            await client.reader.readuntil(EVENTS[0])
            seen.release()
        await client.reader.readuntil(DONE)
        # The first, which may be counted before the head is seen, the last, and the end of the body.
        assert reads <= 3
        client.close()
        await assert_quiescent(gateway, engine)


async def test_silence_is_counted_from_the_last_event(engine: FakeEngine) -> None:
    """More gaps than the limit is long do not end a stream; it ends so long after the last of its events."""
    last_at = 0.0

    async def pause_and_hold(call: Call) -> None:
        nonlocal last_at
        call.stream_head()
        for _ in range(6):
            last_at = time.monotonic()
            call.chunk(EVENTS[0])
            await asyncio.sleep(GAP_SECONDS)
        await hold(call)

    engine.script = pause_and_hold
    settings = {"GATEWAY_IDLE_TIMEOUT_SECONDS": str(IDLE_SECONDS), "GATEWAY_HEARTBEAT_SECONDS": "0.4"}
    async with running_gateway(engine, **settings) as gateway:
        response = await gateway.chat(STREAMED)
        # The loop's clock has steps of a millisecond.
        assert time.monotonic() - last_at >= IDLE_SECONDS - 0.005
        assert events_in(response.content)[:-1] == EVENTS[:1] * 6
        # At 0.4 and 0.8 s.
        assert response.content.rpartition(EVENTS[0])[2].count(b": waiting\n\n") == 2
        assert last_error(response.content)["code"] == "upstream_timeout"
        await assert_quiescent(gateway, engine)


async def test_client_that_reads_late_gets_every_byte_in_order(engine: FakeEngine) -> None:
    sent = 0

    async def pour(call: Call) -> None:
        nonlocal sent
        call.stream_head()
        while sent < TIMES:
            if call._transport.get_write_buffer_size() < len(LARGE):
                call.chunk(LARGE)
                sent += 1
            await asyncio.sleep(0)
        call.chunk(DONE)
        call.end()

    engine.script = pour
    async with running_gateway(engine) as gateway:
        client = await gateway.raw(STREAMED)
        await engine.next_call()
        flow = next(iter(gateway.server.server_state.connections)).flow
        await eventually(lambda: flow.write_paused)
        await client.head()
        read = hashlib.sha256()
        while size := int(await client.reader.readline(), 16):
            read.update(await client.reader.readexactly(size))
            await client.reader.readline()
        assert read.digest() == hashlib.sha256(LARGE * TIMES + DONE).digest()
        client.close()
        await assert_quiescent(gateway, engine)
