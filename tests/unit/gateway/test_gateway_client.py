"""Looks at engines: a page that comes in pieces is read to its end, or to the limit."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from gateway.errors import UpstreamBroken, UpstreamTimeout
from gateway.upstreams import Engine, EngineClient

from tests.fakes.call import Call
from tests.fakes.server import Handler, Server


@pytest.fixture
async def client() -> AsyncIterator[EngineClient]:
    client = EngineClient(1)
    yield client
    client.close()


async def look(client: EngineClient, handler: Handler, limit_bytes: int = 1000) -> bytes:
    server = Server(handler)
    await server.start()
    try:
        engine = Engine("engine", f"http://127.0.0.1:{server.port}")
        status, body = await client.get(engine, "/metrics", timeout_seconds=0.5, limit_bytes=limit_bytes)
    finally:
        await server.stop()
    assert status == 200
    return body


async def in_pieces(call: Call) -> None:
    call.head(chunked=False, headers={"content-length": "300"})
    for letter in (b"a", b"b", b"c"):
        # Long enough that each arrives alone.
        await asyncio.sleep(0.02)
        call.chunk(letter * 100)


async def test_page_in_pieces_is_read_to_its_end(client: EngineClient) -> None:
    assert await look(client, in_pieces) == b"a" * 100 + b"b" * 100 + b"c" * 100


async def test_page_is_read_to_the_limit_and_no_further(client: EngineClient) -> None:
    assert await look(client, in_pieces, limit_bytes=150) == b"a" * 100 + b"b" * 50


async def test_page_that_is_cut_or_never_ends_is_none(client: EngineClient) -> None:
    async def cut(call: Call) -> None:
        call.head(chunked=False, headers={"content-length": "300"})
        call.chunk(b"a" * 100)
        call.fin()

    async def silent(call: Call) -> None:
        call.head(chunked=False, headers={"content-length": "300"})
        await call.disconnected.wait()

    with pytest.raises(UpstreamBroken):
        await look(client, cut)
    with pytest.raises(UpstreamTimeout):
        await look(client, silent)
