"""What clients get where nginx itself refuses or cannot pass a request on."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend, serve, serve_then_reset
from tests.edge.server import MAX_BODY_BYTES, SOURCE, Edge
from tests.edge.wire import raw_exchange

pytestmark = pytest.mark.edge

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def assert_error(answer: httpx.Response, status: int, code: str) -> None:
    """Check one of nginx's own answers against the shape that OpenAI's clients read."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["type"] == ("server_error" if status >= 502 else "invalid_request_error")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]


@pytest.fixture
def own_edge(tmp_path: Path) -> Iterator[Edge]:
    """An nginx of the test's own, not yet started."""
    edge = Edge(tmp_path)
    yield edge
    assert edge.stop() == 0


async def test_a_body_at_the_limit_reaches_the_gateway(client: httpx.AsyncClient, gateway: Backend) -> None:
    assert (await client.post("/v1/chat/completions", content=b"x" * MAX_BODY_BYTES)).status_code == 200
    assert [len(await request.read()) for request in gateway.seen] == [MAX_BODY_BYTES]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_the_limit_is_refused_in_json(
    client: httpx.AsyncClient, gateway: Backend, chunked: bool
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 10_000):
            yield b"x" * 10_000
        yield b"x"

    content = chunks() if chunked else b"x" * (MAX_BODY_BYTES + 1)
    answer = await client.post("/v1/chat/completions", content=content)
    assert_error(answer, 413, "request_too_large")
    assert gateway.seen == []


async def test_without_the_gateway_the_api_says_so_in_json(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", json={}, headers=BROWSER)
    assert_error(answer, 502, "bad_gateway")
    assert answer.headers["retry-after"] == "5"


async def test_without_chat_ui_a_browser_gets_a_page_that_tries_again(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["content-type"]) == (502, "text/html; charset=utf-8")
    assert '<meta http-equiv="refresh" content="3">' in answer.text
    assert "服务正在启动" in answer.text
    assert "The service is starting" in answer.text
    assert "//" not in answer.text.replace("<!doctype html>", "")
    assert answer.headers["cache-control"] == "no-store"


async def test_without_chat_ui_a_program_gets_json(client: httpx.AsyncClient) -> None:
    assert_error(await client.get("/project/settings", headers={"Accept": "application/json"}), 502, "bad_gateway")


async def test_nginx_started_first_finds_the_services_when_they_come(own_edge: Edge) -> None:
    own_edge.start()
    async with httpx.AsyncClient(base_url=own_edge.url, trust_env=False) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 502
        assert (await client.get("/", headers=BROWSER)).status_code == 502
        async with (
            serve(Backend("gateway"), own_edge.gateway_port),
            serve(Backend("chat-ui"), own_edge.chat_port),
        ):
            assert (await client.get("/v1/models")).json() == {"backend": "gateway"}
            assert (await client.get("/", headers=BROWSER)).json() == {"backend": "chat-ui"}


async def test_a_silent_gateway_ends_in_504_and_is_asked_once(own_edge: Edge) -> None:
    async def say_nothing(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    own_edge.shorten("snippets/stream.conf", "proxy_read_timeout", "200ms")
    own_edge.start()
    backend = Backend("gateway")
    backend.handler = say_nothing
    async with (
        serve(backend, own_edge.gateway_port),
        httpx.AsyncClient(base_url=own_edge.url, trust_env=False) as client,
    ):
        answer = await client.post("/v1/chat/completions", json={}, headers=BROWSER)
    assert_error(answer, 504, "gateway_timeout")
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert len(backend.seen) == 1


async def test_a_gateway_that_takes_no_connection_may_be_asked_again(own_edge: Edge) -> None:
    own_edge.shorten("nginx.conf", "proxy_connect_timeout", "200ms")
    own_edge.start()
    with contextlib.ExitStack() as sockets:
        deaf = sockets.enter_context(socket.create_server(("127.0.0.1", own_edge.gateway_port), backlog=0))
        waiting = sockets.enter_context(socket.socket())
        waiting.connect(deaf.getsockname())
        async with httpx.AsyncClient(base_url=own_edge.url, trust_env=False) as client:
            answer = await client.post("/v1/chat/completions", json={})
    assert_error(answer, 504, "gateway_timeout")
    assert answer.headers["retry-after"] == "5"
    assert "x-should-retry" not in answer.headers


async def test_nginx_waits_longer_than_any_timeout_of_the_gateway() -> None:
    for snippet in ("stream.conf", "websocket.conf"):
        assert "proxy_read_timeout 3600s;" in (SOURCE / "snippets" / snippet).read_text()


@pytest.mark.parametrize("answers", [0, 1], ids=["new connection", "kept connection"])
async def test_a_post_that_was_reset_is_not_sent_again(edge: Edge, client: httpx.AsyncClient, answers: int) -> None:
    async with serve_then_reset(edge.gateway_port, answers) as lines:
        for _ in range(answers):
            assert (await client.post("/v1/chat/completions", json={})).status_code == 200
        assert_error(await client.post("/v1/chat/completions", json={}), 502, "bad_gateway")
    assert lines == [b"POST /v1/chat/completions HTTP/1.1"] * (answers + 1)


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "bad_request"),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 40_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /v1/" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
        (b"TRACE /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "not_implemented"),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "bad_request"),
        (b"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n", 505, "http_version_not_supported"),
    ],
    ids=["no HTTP", "no host", "long header", "long address", "TRACE", "unknown encoding", "bad length", "HTTP/9.9"],
)
async def test_what_is_no_proper_request_is_refused_in_json(
    edge: Edge, gateway: Backend, request_bytes: bytes, status: int, code: str
) -> None:
    answer = await raw_exchange(edge, request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)["error"]["code"] == code
    assert gateway.seen == []


def test_every_status_that_nginx_answers_has_a_body() -> None:
    listed = {
        status
        for line in re.findall(r"error_page ([^;/$]+)[/$]", (SOURCE / "snippets/errors.conf").read_text())
        for status in re.findall(r"\b\d{3}\b", line)
    }
    files = {path.stem for path in (SOURCE / "errors").glob("*.json")}
    # A 494 is told as 431; a 497 leads to HTTPS with a 308.
    assert files == listed - {"494", "497", "308"}
    for path in (SOURCE / "errors").glob("*.json"):
        assert set(json.loads(path.read_text())["error"]) == {"message", "type", "param", "code"}
