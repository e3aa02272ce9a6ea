"""The same by HTTP/2, where a client library would tidy what is sent: frames as an attacker writes them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge

pytestmark = pytest.mark.edge

PATIENCE_SECONDS = 10.0
RESETS = 2000
# conf.d/shield.inc, and the default of NGINX_RATE_LIMIT_REQUESTS.
BURST, RATE = 400, 100
Headers = list[tuple[bytes, bytes]]
POST: Headers = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"127.0.0.1")]
PATH = (b":path", b"/v1/chat/completions")


class Attacker:
    """One connection of HTTP/2 that sends whatever it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = H2Connection(
            H2Configuration(header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False)
        )
        self.http.initiate_connection()
        self._reader, self._writer = reader, writer

    async def flush(self) -> None:
        """Send what there is to send."""
        self._writer.write(self.http.data_to_send())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._writer.drain()

    async def ask(self, headers: Headers, body: bytes = b"") -> int:
        """Return the status of the answer to one request; 0 where the stream or the connection was ended instead."""
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(stream, headers, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        await self.flush()
        status = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while data := await self._reader.read(65_536):
                for event in self.http.receive_data(data):
                    if isinstance(event, ResponseReceived) and event.stream_id == stream:
                        status = int(dict(event.headers)[b":status"])
                    if isinstance(event, ConnectionTerminated) or (
                        isinstance(event, StreamReset | StreamEnded) and event.stream_id == stream
                    ):
                        return status
                await self.flush()
        return status


@pytest.fixture(scope="module")
def tls_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """An edge with a certificate of its own."""
    edge = Edge(tmp_path_factory.mktemp("tls"), NGINX_TLS="self-signed", NGINX_SERVER_NAMES="chat.example.org")
    edge.start()
    yield edge
    assert edge.stop() == 0
    log = (edge.prefix / "error.log").read_text()
    assert not [word for word in ("[emerg]", "[crit]", "[alert]") if word in log]


@pytest.fixture
async def backends(tls_edge: Edge) -> AsyncIterator[tuple[Backend, Backend]]:
    async with (
        serve(Backend("gateway"), tls_edge.gateway_port) as gateway,
        serve(Backend("chat-ui"), tls_edge.chat_port) as chat_ui,
    ):
        yield gateway, chat_ui


@contextlib.asynccontextmanager
async def attacking(edge: Edge) -> AsyncIterator[Attacker]:
    context = edge.trust()
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.tls_port, ssl=context)
    try:
        yield Attacker(reader, writer)
    finally:
        # Without the goodbyes of TLS: nginx may have left already.
        writer.transport.abort()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([*POST, PATH, (b"transfer-encoding", b"chunked")], b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        ([*POST, PATH, (b"content-length", b"0")], b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
        ([*POST, PATH, (b"content-length", b"999")], b"{}"),
        ([*POST, PATH, (b"content-length", b"2"), (b"content-length", b"0")], b"{}"),
        ([*POST, PATH, (b"x-a", b"b\r\nx-forwarded-for: 203.0.113.7\r\n\r\nGET /metrics HTTP/1.1")], b""),
        ([*POST, PATH, (b"x-a\r\nx-forwarded-for", b"203.0.113.7")], b""),
        ([*POST, (b":path", b"/v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics")], b""),
        ([*POST, (b":path", b"metrics")], b""),
        ([*POST, (b":path", b"")], b""),
        ([(b":method", b"GET /metrics HTTP/1.1\r\n"), *POST[1:], PATH], b""),
        ([*POST, PATH, PATH], b""),
        ([*POST, PATH, (b"X-Upper", b"a")], b""),
        ([*POST, PATH, (b"host", b"evil.example")], b""),
    ],
    ids=[
        *("an encoding", "a length too short", "a length too long", "two lengths", "a line in a value"),
        *("a line in a name", "a line in a path", "no slash", "no path", "a line in a method", "two paths"),
        *("capitals", "another host"),
    ],
)
async def test_no_frame_hides_a_second_request(
    tls_edge: Edge, backends: tuple[Backend, Backend], headers: Headers, body: bytes
) -> None:
    gateway, chat_ui = backends
    async with attacking(tls_edge) as attacker:
        await attacker.ask(headers, body)
    async with httpx.AsyncClient(base_url=tls_edge.url, verify=tls_edge.trust(), trust_env=False) as client:
        assert (await client.get("/v1/models")).status_code == 200
    assert [path for path in gateway.paths if path != "/v1/models"] in ([], ["/v1/chat/completions"])
    assert gateway.paths.count("/v1/models") == 1
    assert chat_ui.paths == []
    for request in gateway.seen:
        assert request.headers.getall("X-Forwarded-For") == ["127.0.0.1"]
        assert request.headers["Host"].partition(":")[0] == "127.0.0.1"
        assert b"metrics" not in await request.read() or request.headers["Content-Length"] != "0"


@pytest.mark.parametrize(
    "path", [b"/metrics", b"/v1/../metrics", b"//metrics", b"/%6detrics", b"/status", b"/readyz/verbose", b"/tokenize"]
)
async def test_inner_paths_are_as_far_away(tls_edge: Edge, backends: tuple[Backend, Backend], path: bytes) -> None:
    async with attacking(tls_edge) as attacker:
        assert await attacker.ask([(b":method", b"GET"), *POST[1:], (b":path", path)]) == 404
    assert backends[0].paths + backends[1].paths == []


@pytest.mark.parametrize("name", [b"evil.example", b"", b"chat.example.org.evil.example"])
async def test_names_that_were_not_given_are_dropped_here_too(
    tls_edge: Edge, backends: tuple[Backend, Backend], name: bytes
) -> None:
    async with attacking(tls_edge) as attacker:
        assert await attacker.ask([(b":method", b"GET"), POST[1], (b":authority", name), (b":path", b"/")]) in {0, 400}
    assert backends[0].paths + backends[1].paths == []


async def test_a_flood_of_requests_taken_back_at_once_disturbs_nobody(
    tls_edge: Edge, backends: tuple[Backend, Backend]
) -> None:
    """Two thousand requests of two frames each: the shield lets through a burst of them at the most."""
    gateway, _ = backends
    began = time.monotonic()
    async with attacking(tls_edge) as attacker:
        with contextlib.suppress(ConnectionError, TimeoutError):
            for number in range(RESETS):
                stream = 1 + 2 * number
                attacker.http.send_headers(stream, [*POST, PATH], end_stream=True)
                attacker.http.reset_stream(stream, ErrorCodes.CANCEL)
                if number % 100 == 0:
                    await attacker.flush()
            await attacker.flush()
        # Another address than the one that floods.
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2", verify=tls_edge.trust())
        async with httpx.AsyncClient(base_url=tls_edge.url, transport=transport, timeout=PATIENCE_SECONDS) as client:
            assert (await client.get("/v1/models")).json() == {"backend": "gateway"}
    let_in = BURST + RATE * (time.monotonic() - began) + 2
    assert len(gateway.seen) <= let_in
