"""Many clients at once, slow ones among them, and a reload in the middle of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge

pytestmark = pytest.mark.edge

IDLE_CONNECTIONS = 1000
SLOW_CLIENTS = 200
EVENT = b"data: 1\n\n"
ANSWER_TIMEOUT_SECONDS = 20.0
CLOSE_TIMEOUT_SECONDS = 30.0


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    """An nginx of the test's own, not yet started."""
    edge = Edge(tmp_path, NGINX_RATE_LIMIT_REQUESTS="off", NGINX_MAX_CONNECTIONS_PER_CLIENT="off")
    yield edge
    assert edge.stop() == 0
    assert "[alert]" not in (edge.prefix / "error.log").read_text()


@contextlib.asynccontextmanager
async def behind(edge: Edge) -> AsyncIterator[tuple[Backend, Backend]]:
    async with (
        serve(Backend("gateway"), edge.gateway_port) as gateway,
        serve(Backend("chat-ui"), edge.chat_port) as chat_ui,
    ):
        yield gateway, chat_ui


class Crowd:
    """Raw connections to one nginx."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self.members: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _reader, writer in self.members:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self.members), return_exceptions=True)

    async def join(self, number: int, request: bytes) -> None:
        """Connect so many times and send this each time."""
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._edge.port)
            writer.write(request)
            self.members.append((reader, writer))

    async def is_closed(self) -> bool:
        """Wait until nginx has closed all of them; a reset is an end as well."""
        async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
            ends = await asyncio.gather(*(reader.read() for reader, _ in self.members), return_exceptions=True)
        return all(end == b"" or isinstance(end, ConnectionError) for end in ends)


async def assert_others_are_served(edge: Edge) -> None:
    async with httpx.AsyncClient(base_url=edge.url, trust_env=False, timeout=ANSWER_TIMEOUT_SECONDS) as client:
        for path in ("/v1/models", "/", "/healthz"):
            assert (await client.get(path)).status_code == 200


async def test_a_thousand_idle_connections_disturb_nobody(edge: Edge) -> None:
    edge.start()
    async with behind(edge), Crowd(edge) as crowd:
        await crowd.join(IDLE_CONNECTIONS, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, _ in crowd.members:
            assert (await reader.readuntil(b"\r\n\r\nok\n")).startswith(b"HTTP/1.1 200 ")
        await assert_others_are_served(edge)
        # They were kept all the time.
        _, writer = crowd.members[0]
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await crowd.members[0][0].readuntil(b"ok\n")
        assert not any(reader.at_eof() for reader, _ in crowd.members)


async def test_a_thousand_open_pages_disturb_nobody(edge: Edge) -> None:
    """Each holds a connection here and one behind."""
    edge.start()
    handshake = (
        b"GET /ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    async def hold(request: web.Request) -> web.StreamResponse:
        if "Upgrade" not in request.headers:
            return web.Response()
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    async with behind(edge) as (_, chat_ui):
        chat_ui.handler = hold
        async with Crowd(edge) as crowd:
            await crowd.join(IDLE_CONNECTIONS, handshake)
            for reader, _writer in crowd.members:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            await assert_others_are_served(edge)


@pytest.mark.parametrize(
    ("limit", "file", "request_bytes"),
    [
        ("client_header_timeout", "nginx.conf", b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Slow: "),
        ("client_body_timeout", "nginx.conf", b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"),
    ],
    ids=["headers", "bodies"],
)
async def test_slow_clients_are_given_up_and_reach_no_service(
    edge: Edge, limit: str, file: str, request_bytes: bytes
) -> None:
    edge.shorten(file, limit, "1s")
    edge.start()
    async with behind(edge) as (gateway, _), Crowd(edge) as crowd:
        await crowd.join(SLOW_CLIENTS, request_bytes)
        await assert_others_are_served(edge)
        assert await crowd.is_closed()
        assert len(gateway.seen) == 1
    assert [entry["status"] for entry in edge.log()].count(408) == SLOW_CLIENTS


async def test_a_header_that_drips_is_given_up_though_it_never_stops(edge: Edge) -> None:
    edge.shorten("nginx.conf", "client_header_timeout", "1s")
    edge.start()
    async with Crowd(edge) as crowd:
        await crowd.join(1, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        reader, writer = crowd.members[0]
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                while not reader.at_eof():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.1)


async def test_a_client_that_reads_slowly_holds_up_only_its_own_stream(edge: Edge) -> None:
    async def pour(request: web.Request) -> web.StreamResponse:
        if request.path != "/v1/pour":
            return web.Response()
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(200):
            await response.write(b"x" * 100_000)
        return response

    edge.start()
    async with behind(edge) as (gateway, _), Crowd(edge) as crowd:
        gateway.handler = pour
        await crowd.join(20, b"GET /v1/pour HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, _writer in crowd.members:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await assert_others_are_served(edge)


async def test_a_reload_ends_no_stream(edge: Edge) -> None:
    release = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENT)
        if request.path != "/v1/models":
            await release.wait()
            await response.write(EVENT)
        return response

    edge.start()
    async with (
        behind(edge) as (gateway, _),
        httpx.AsyncClient(base_url=edge.url, trust_env=False, timeout=10) as client,
    ):
        gateway.handler = stream
        async with client.stream("POST", "/v1/chat/completions") as answer:
            parts = answer.aiter_raw()
            assert await anext(parts) == EVENT
            edge.reload()
            await assert_others_are_served(edge)
            release.set()
            assert [part async for part in parts] == [EVENT]
