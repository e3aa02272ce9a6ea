"""HTTPS: who is led there, what is spoken there, and a certificate that is renewed while streams run."""

import asyncio
import contextlib
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from aiohttp import web
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived

from tests.edge.backend import Backend, serve
from tests.edge.certificates import Pair, make_pair, openssl
from tests.edge.server import Edge, StartEdge, running_edges
from tests.fakes.gateway import eventually

pytestmark = pytest.mark.edge

EVENT = b"data: 1\n\n"
WATCH_SECONDS = 0.1
NOTICE_SECONDS = 10


@pytest.fixture
def start_edge(tmp_path: Path) -> Iterator[StartEdge]:
    """Start an nginx with TLS settings of the test's own."""
    with running_edges(without=("emerg", "crit", "alert")) as run:
        yield lambda **settings: run(Edge(tmp_path / "nginx", **settings))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A certificate as somebody was given it."""
    return make_pair(tmp_path / "given")


@contextlib.asynccontextmanager
async def behind(edge: Edge) -> AsyncIterator[tuple[Backend, Backend]]:
    async with (
        serve(Backend("gateway"), edge.gateway_port) as gateway,
        serve(Backend("chat-ui"), edge.chat_port) as chat_ui,
    ):
        yield gateway, chat_ui


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def client_of(edge: Edge, certificate: Path, *, http2: bool = False) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=edge.url, verify=trusting(certificate), http2=http2, trust_env=False, timeout=10)


async def served(edge: Edge) -> bytes:
    """Return the certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", edge.tls_port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        await writer.wait_closed()
    assert isinstance(certificate, bytes)
    return certificate


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


async def hold_open(request: web.Request, release: asyncio.Event) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(EVENT)
    await release.wait()
    await response.write(EVENT)
    return response


@contextlib.asynccontextmanager
async def watching(edge: Edge, path: str = os.defpath) -> AsyncIterator[Callable[[], str]]:
    """Run the watcher of this edge's certificate; gives what it has said."""
    log = edge.prefix / "watch.log"
    environment = {"PATH": path, **edge.settings}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", str(edge.prefix / "certificate.sh"), "watch", str(WATCH_SECONDS)),
            env=environment,
            stderr=output,
        )
        try:
            yield log.read_text
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.parametrize("http2", [False, True], ids=["http/1.1", "http/2"])
async def test_both_versions_of_http_are_spoken(start_edge: StartEdge, pair: Pair, http2: bool) -> None:
    edge = start_edge(**pair.settings)
    async with behind(edge) as (gateway, _), client_of(edge, pair.certificate, http2=http2) as client:
        answer = await client.get("/v1/models", headers={"X-Request-Id": f"tls-{http2}"})
    assert (answer.http_version, answer.json()) == ("HTTP/2" if http2 else "HTTP/1.1", {"backend": "gateway"})
    assert gateway.seen[0].headers["X-Forwarded-Proto"] == "https"
    assert gateway.seen[0].headers["Host"] == f"127.0.0.1:{edge.tls_port}"
    assert edge.logged(f"tls-{http2}")["protocol"] == ("HTTP/2.0" if http2 else "HTTP/1.1")


async def test_old_protocols_are_refused(start_edge: StartEdge, pair: Pair) -> None:
    edge = start_edge(**pair.settings)
    arguments = ["s_client", "-connect", f"127.0.0.1:{edge.tls_port}", "-cipher", "DEFAULT@SECLEVEL=0"]
    for option, ok in {"-tls1_1": False, "-tls1_2": True, "-tls1_3": True}.items():
        done = await asyncio.to_thread(
            subprocess.run, ["openssl", *arguments, option], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert (b"Cipher is (NONE)" in done.stdout) is not ok, option


@pytest.mark.parametrize("path", ["/", "/v1/models?x=%2F", "/ws/socket.io/?EIO=4"])
async def test_plain_http_leads_to_https_and_does_nothing_else(start_edge: StartEdge, pair: Pair, path: str) -> None:
    edge = start_edge(**pair.settings)
    async with behind(edge) as (gateway, chat_ui), httpx.AsyncClient(trust_env=False) as client:
        # A POST stays a POST.
        answer = await client.post(f"http://127.0.0.1:{edge.port}{path}")
        assert (answer.status_code, answer.headers["location"]) == (308, edge.url + path)
        assert "strict-transport-security" not in answer.headers
        assert (await client.get(f"http://127.0.0.1:{edge.port}/healthz")).text == "ok\n"
        # Who writes http:// with the port of HTTPS means the same.
        answer = await client.get(f"http://127.0.0.1:{edge.tls_port}{path}")
        assert (answer.status_code, answer.headers["location"]) == (308, edge.url + path)
    assert gateway.seen + chat_ui.seen == []


async def test_browsers_are_told_to_stay_only_where_a_certificate_was_given(start_edge: StartEdge, pair: Pair) -> None:
    edge = start_edge(**pair.settings)
    async with behind(edge), client_of(edge, pair.certificate) as client:
        for path in ("/", "/v1/models", "/assets/x.js", "/metrics", "/healthz"):
            assert (await client.get(path)).headers["strict-transport-security"] == "max-age=31536000", path


async def test_a_self_signed_certificate_is_made_once_and_kept(start_edge: StartEdge, tmp_path: Path) -> None:
    settings = {"NGINX_TLS": "self-signed", "NGINX_SERVER_NAMES": "chat.example.org, *.example.com"}
    edge = start_edge(**settings)
    made = edge.prefix / "tls/self-signed.pem"
    first = made.read_bytes()
    async with behind(edge), client_of(edge, made) as client:
        answer = await client.get("/v1/models")
        assert answer.status_code == 200
        assert "strict-transport-security" not in answer.headers
    assert (
        openssl("x509", "-in", str(made), "-noout", "-checkhost", "chat.example.org")
        .strip()
        .endswith("does match certificate")
    )
    for secret in (edge.prefix / "tls/self-signed.key", edge.prefix / "run/tls.pem"):
        assert secret.stat().st_mode & 0o077 == 0
    Edge(tmp_path / "nginx", **settings)
    assert made.read_bytes() == first
    # It has to name what is served.
    Edge(tmp_path / "nginx", **settings | {"NGINX_SERVER_NAMES": "other.example.org"})
    assert made.read_bytes() != first


async def test_a_renewed_certificate_is_served_while_streams_go_on(
    start_edge: StartEdge, pair: Pair, tmp_path: Path
) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    edge, release, old = start_edge(**pair.settings), asyncio.Event(), der(pair)
    context = trusting(pair.certificate)
    async with (
        behind(edge) as (gateway, chat_ui),
        client_of(edge, pair.certificate) as client,
        client_of(edge, pair.certificate, http2=True) as client2,
        aiohttp.ClientSession() as session,
        watching(edge) as said,
    ):
        chat_ui.handler = echo
        gateway.handler = lambda request: hold_open(request, release)
        async with (
            client.stream("POST", "/v1/chat/completions") as stream,
            client2.stream("POST", "/v1/chat/completions") as stream2,
            session.ws_connect(f"{edge.url}/ws/socket.io/", ssl=context) as socket,
        ):
            parts, parts2 = stream.aiter_raw(), stream2.aiter_raw()
            assert [await anext(parts), await anext(parts2)] == [EVENT, EVENT]
            workers = edge.workers()
            assert await served(edge) == old
            renewed = make_pair(tmp_path / "renewed")
            pair.replace_by(renewed)
            await eventually(lambda: "took it anew" in said(), NOTICE_SECONDS)
            assert await served(edge) == der(renewed) != old
            release.set()
            assert [await anext(parts), await anext(parts2)] == [EVENT, EVENT]
            await socket.send_str("still here")
            assert await socket.receive_str(timeout=5) == "still here"
            # Nothing was even reloaded.
            assert edge.workers() == workers


async def test_a_certificate_is_looked_at_each_day_and_a_self_made_one_stays(
    start_edge: StartEdge, tmp_path: Path
) -> None:
    edge = start_edge(NGINX_TLS="self-signed", NGINX_SERVER_NAMES="chat.example.org, *.example.com")
    first = (edge.prefix / "tls/self-signed.pem").read_bytes()
    today, date = tmp_path / "today", tmp_path / "bin/date"
    date.parent.mkdir()
    date.write_text(f"#!/bin/sh\ncat {today}\n")
    date.chmod(0o755)
    today.write_text("2026-11-30\n")
    async with watching(edge, f"{date.parent}:{os.defpath}") as said:
        await asyncio.sleep(5 * WATCH_SECONDS)
        assert said() == ""
        today.write_text("2026-12-01\n")
        await eventually(lambda: "took it anew" in said(), NOTICE_SECONDS)
    assert (edge.prefix / "tls/self-signed.pem").read_bytes() == first
    assert "made a self-signed one" not in said()


async def test_what_cannot_be_served_is_named_and_the_old_one_stays(
    start_edge: StartEdge, pair: Pair, tmp_path: Path
) -> None:
    edge, old = start_edge(**pair.settings), der(pair)
    renewed = make_pair(tmp_path / "renewed")
    async with watching(edge) as said:
        # Half of a renewal, as a copy that was interrupted leaves it.
        pair.certificate.write_bytes(renewed.certificate.read_bytes())
        await eventually(lambda: "stays in use" in said(), NOTICE_SECONDS)
        assert "NGINX_TLS_KEY" in said()
        assert "does not belong" in said()
        assert await served(edge) == old
        pair.key.write_bytes(renewed.key.read_bytes())
        await eventually(lambda: "took it anew" in said(), NOTICE_SECONDS)
        assert await served(edge) == der(renewed)


async def test_a_stream_that_is_reset_in_http2_is_noticed(start_edge: StartEdge, pair: Pair) -> None:
    """Stop, in a browser: the connection stays, and other streams on it."""
    cancelled = asyncio.Event()

    async def work_without_end(request: web.Request) -> web.StreamResponse:
        try:
            return await hold_open(request, asyncio.Event())
        except asyncio.CancelledError:
            cancelled.set()
            raise

    edge, context = start_edge(**pair.settings), trusting(pair.certificate)
    context.set_alpn_protocols(["h2"])
    async with behind(edge) as (gateway, _):
        gateway.handler = work_without_end
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.tls_port, ssl=context)
        http = H2Connection()
        http.initiate_connection()
        http.send_headers(
            1,
            [(":method", "GET"), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", "/v1/models")],
            end_stream=True,
        )
        writer.write(http.data_to_send())
        async with asyncio.timeout(NOTICE_SECONDS):
            while not any(isinstance(event, DataReceived) for event in http.receive_data(await reader.read(65_536))):
                writer.write(http.data_to_send())
            http.reset_stream(1, ErrorCodes.CANCEL)
            writer.write(http.data_to_send())
            await cancelled.wait()
        assert not reader.at_eof()
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


async def test_a_silent_stream_of_http2_outlasts_the_idle_limit(
    start_edge: StartEdge, pair: Pair, tmp_path: Path
) -> None:
    edge = Edge(tmp_path / "quiet", **pair.settings)
    edge.shorten("nginx.conf", "keepalive_timeout", "300ms")
    edge.start()
    release = asyncio.Event()
    try:
        async with behind(edge) as (gateway, _), client_of(edge, pair.certificate, http2=True) as client:
            gateway.handler = lambda request: hold_open(request, release)
            async with client.stream("POST", "/v1/chat/completions") as stream:
                parts = stream.aiter_raw()
                assert await anext(parts) == EVENT
                await asyncio.sleep(1)
                release.set()
                assert await anext(parts) == EVENT
    finally:
        assert edge.stop() == 0


async def test_cookies_of_the_page_are_secure_over_https_alone(start_edge: StartEdge, pair: Pair) -> None:
    async def set_cookie(_request: web.Request) -> web.Response:
        return web.Response(headers={"Set-Cookie": "session=1; Path=/; HttpOnly"})

    edge = start_edge(**pair.settings)
    async with behind(edge) as (_, chat_ui), client_of(edge, pair.certificate) as client:
        chat_ui.handler = set_cookie
        answer = await client.get("/login", headers={"Accept": "text/html"})
    cookies = answer.headers.get_list("set-cookie")
    assert [cookie.partition("=")[0] for cookie in cookies] == ["session", "chat_place"]
    assert all("; secure" in cookie.lower() for cookie in cookies)
