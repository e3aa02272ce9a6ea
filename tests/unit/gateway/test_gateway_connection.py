"""Connections to engines: kept while they are sound, bounded, and never one answer's bytes in another."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from gateway.errors import GatewayError, UpstreamBroken, UpstreamInvalidResponse, UpstreamUnavailable
from gateway.upstreams import Answer, Engine, EngineClient
from gateway.upstreams.connection import MAX_HEAD_BYTES, MOST_UNREAD_BYTES

from tests.fakes.call import Call
from tests.fakes.gateway import eventually
from tests.fakes.server import Server

Ask = Callable[[], Awaitable[Answer]]


@asynccontextmanager
async def asking(handler: Callable[[Call], Awaitable[None]]) -> AsyncIterator[tuple[Ask, Server, EngineClient]]:
    server, client = Server(handler), EngineClient(1)
    await server.start()
    engine = Engine("engine", f"http://127.0.0.1:{server.port}")
    try:
        yield lambda: client.post(engine, "/v1/completions", b"{}", {}), server, client
        assert client.open_connections == 0
    finally:
        client.close()
        await server.stop()


async def whole(call: Call) -> None:
    call.whole(200, b'{"n": 1}')


async def test_connection_is_used_again_after_a_whole_answer_only() -> None:
    async with asking(whole) as (ask, server, _):
        for _ in range(3):
            with await ask() as answer:
                assert await answer.read_whole(100) == b'{"n": 1}'
        assert server.connections == 1
        with await ask():
            pass
        with await ask() as answer:
            assert await answer.read_whole(100) == b'{"n": 1}'
        assert server.connections == 2


@pytest.mark.parametrize(
    "extra",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nSMUGGLED", b"\r\nSMUGGLED", b"0\r\n\r\n"],
    ids=["answer", "text", "chunk"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_bytes_behind_an_answer_never_reach_the_next(extra: bytes, at_once: bool) -> None:
    async def answer_and_more(call: Call) -> None:
        body = b'{"n": 1}'
        sound = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        call.write(sound + extra if at_once else sound)
        if not at_once:
            await asyncio.sleep(0)
            call.write(extra)

    async with asking(answer_and_more) as (ask, server, _):
        for _ in range(3):
            with await ask() as answer:
                assert await answer.read_whole(100) == b'{"n": 1}'
            await eventually(lambda: not server.transports)


async def test_answers_before_the_answer_are_passed_over() -> None:
    async def hints_first(call: Call) -> None:
        call.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\ncontent-type: text/hint\r\n\r\n")
        call.whole(200, b"{}")

    async with asking(hints_first) as (ask, _, _):
        with await ask() as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert await answer.read_whole(100) == b"{}"


async def test_answer_without_a_length_ends_with_its_connection() -> None:
    async def until_closed(call: Call) -> None:
        call.head(chunked=False)
        call.write(b'{"n": 1}')
        call.fin()

    async with asking(until_closed) as (ask, server, _):
        for number in (1, 2):
            with await ask() as answer:
                assert await answer.read_whole(100) == b'{"n": 1}'
            assert server.connections == number


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", b"a"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"a"),
    ],
    ids=["line", "headers", "trailer", "extension"],
)
async def test_what_completes_nothing_is_not_read_for_ever(start: bytes, filler: bytes) -> None:
    async def endless(call: Call) -> None:
        call.write(start)
        while not call.disconnected.is_set():
            call.write(filler * 4096)
            await asyncio.sleep(0.001)

    async with asking(endless) as (ask, server, _):
        with pytest.raises(GatewayError) as raised, await ask() as answer:
            await answer.read_whole(MAX_HEAD_BYTES)
        assert isinstance(raised.value, UpstreamInvalidResponse | UpstreamBroken)
        await eventually(lambda: not server.transports)


async def test_engine_waits_for_a_reader_that_is_slow() -> None:
    sent = 0

    async def pour(call: Call) -> None:
        nonlocal sent
        call.head()
        while not call.disconnected.is_set():
            if call._transport.get_write_buffer_size() < 65_536:
                call.chunk(b"a" * 65_536)
                sent += 65_536
            await asyncio.sleep(0)

    async with asking(pour) as (ask, _, _):
        with await ask() as answer:
            connection = answer._connection
            await eventually(lambda: connection._is_paused)
            held = connection._unread_bytes
            assert MOST_UNREAD_BYTES < held < 3 * MOST_UNREAD_BYTES
            read = 0
            while read < 4 * held:
                read += len(await answer.read())
            assert sent >= read


async def test_what_arrives_is_offered_and_what_is_refused_is_read() -> None:
    step = asyncio.Semaphore(0)

    async def in_step(call: Call) -> None:
        call.head()
        for letter in b"abcde":
            await step.acquire()
            call.chunk(bytes([letter]))
        await step.acquire()
        call.end()

    offered: list[bytes] = []

    def take(piece: bytes) -> bool:
        offered.append(piece)
        step.release()
        return piece != b"c"

    async with asking(in_step) as (ask, _, _):
        with await ask() as answer:
            step.release()
            assert await answer.read(take) == b"c"
            # Only a reader that waits is offered anything.
            assert offered == [b"a", b"b", b"c"]
            assert await answer.read(take) == b""
    assert offered == [b"a", b"b", b"c", b"d", b"e"]


async def test_last_piece_is_offered_with_the_end_behind_it() -> None:
    go = asyncio.Event()

    async def at_once(call: Call) -> None:
        call.head()
        await go.wait()
        call.write(b"4\r\nlast\r\n0\r\n\r\n")

    offered: list[bytes] = []

    def take(piece: bytes) -> bool:
        offered.append(piece)
        return True

    async with asking(at_once) as (ask, _, _):
        with await ask() as answer:
            asyncio.get_running_loop().call_soon(go.set)
            assert await answer.read(take) == b""
    assert offered == [b"last"]


async def test_cancelling_before_the_head_ends_the_engines_work() -> None:
    calls: list[Call] = []

    async def silent(call: Call) -> None:
        calls.append(call)
        await call.disconnected.wait()

    async with asking(silent) as (ask, _, client):
        asked = asyncio.create_task(ask())  # type: ignore[arg-type]
        await eventually(lambda: calls)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert client.open_connections == 0
        await asyncio.wait_for(calls[0].disconnected.wait(), 1)


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1", "http://no-such-host.invalid:8000", "http://a..b:8000"])
async def test_address_that_cannot_be_reached_is_unavailable(base_url: str) -> None:
    client = EngineClient(5)
    with pytest.raises(UpstreamUnavailable):
        await client.post(Engine("engine", base_url), "/v1/completions", b"{}", {})
    assert client.open_connections == 0


async def test_request_never_goes_to_a_connection_that_the_engine_has_closed() -> None:
    async with asking(whole) as (ask, server, _):
        for number in range(1, 4):
            with await ask() as answer:
                await answer.read_whole(100)
            # Its end is in the kernel by then; the client's loop has had no turn to hear of it.
            for transport in server.transports:
                with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as end:
                    end.shutdown(socket.SHUT_WR)
            assert server.connections == number
