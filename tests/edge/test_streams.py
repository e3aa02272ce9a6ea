"""Answers pass as they come, and a client that leaves is noticed behind the edge."""

import asyncio
import itertools
import time

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend, serve_until_closed
from tests.edge.server import Edge

pytestmark = pytest.mark.edge

INTERVAL_SECONDS = 0.1
EVENTS = [f'data: {{"token":"你好🔥{number}"}}\n\n'.encode() for number in range(8)]


async def send_events(request: web.Request) -> web.StreamResponse:
    """Send one event an interval."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in EVENTS:
        await response.write(event)
        await asyncio.sleep(INTERVAL_SECONDS)
    return response


async def assert_events_arrive_one_by_one(client: httpx.AsyncClient) -> None:
    """Ask for a stream as a browser would, and check bytes, times and encoding."""
    start, arrivals, chunks = time.monotonic(), [], []
    headers = {"Accept-Encoding": "gzip, deflate, br"}
    async with client.stream("POST", "/v1/chat/completions", json={"stream": True}, headers=headers) as answer:
        assert "content-encoding" not in answer.headers
        async for chunk in answer.aiter_raw():
            arrivals.append(time.monotonic())
            chunks.append(chunk)
    assert b"".join(chunks) == b"".join(EVENTS)
    assert arrivals[0] - start < 0.5
    # Room for a busy machine; a buffer would deliver all of them at once, at the end.
    assert len(chunks) > len(EVENTS) / 2
    assert max(later - earlier for earlier, later in itertools.pairwise(arrivals)) < 4 * INTERVAL_SECONDS


async def test_events_arrive_one_by_one_and_uncompressed(client: httpx.AsyncClient, gateway: Backend) -> None:
    gateway.handler = send_events
    await assert_events_arrive_one_by_one(client)
    assert "Accept-Encoding" not in gateway.seen[0].headers


async def test_events_without_framing_are_not_held_back_either(edge: Edge, client: httpx.AsyncClient) -> None:
    async with serve_until_closed(edge.gateway_port, EVENTS, INTERVAL_SECONDS):
        await assert_events_arrive_one_by_one(client)


async def test_long_json_of_the_api_is_not_compressed_either(client: httpx.AsyncClient, gateway: Backend) -> None:
    async def answer_long(_request: web.Request) -> web.Response:
        return web.json_response({"text": "你好" * 5000})

    gateway.handler = answer_long
    answer = await client.post("/v1/completions", json={}, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert answer.json()["text"] == "你好" * 5000


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_client_that_leaves_is_noticed_at_the_gateway(
    client: httpx.AsyncClient, gateway: Backend, streaming: bool
) -> None:
    arrived, cancelled = asyncio.Event(), asyncio.Event()

    async def work_without_end(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if streaming:
            await response.prepare(request)
            await response.write(EVENTS[0])
        arrived.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return response

    gateway.handler = work_without_end
    asking = asyncio.create_task(client.post("/v1/chat/completions", json={"stream": streaming}))
    await asyncio.wait_for(arrived.wait(), 2)
    asking.cancel()
    await asyncio.wait_for(cancelled.wait(), 2)


async def test_a_slow_upload_does_not_occupy_the_gateway(edge: Edge, gateway: Backend) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\n{}")
    await writer.drain()
    # A whole exchange on another connection comes and goes before the rest is sent.
    async with httpx.AsyncClient(base_url=edge.url, trust_env=False) as other:
        await other.get("/v1/models")
    assert gateway.paths == ["/v1/models"]
    writer.write(b"  ")
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert gateway.paths == ["/v1/models", "/v1/chat/completions"]


async def test_a_broken_stream_ends_broken(client: httpx.AsyncClient, gateway: Backend) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENTS[0])
        assert request.transport is not None
        request.transport.abort()
        return response

    gateway.handler = break_off
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/v1/chat/completions", json={"stream": True})
    assert len(gateway.seen) == 1
