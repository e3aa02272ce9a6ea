"""Which address reaches which service, and which none."""

import gzip

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend
from tests.edge.server import Edge
from tests.edge.wire import raw_exchange

pytestmark = pytest.mark.edge

PRIVATE = [
    "/v1",
    "/livez",
    "/metrics",
    "/metrics/",
    "//metrics",
    "/%6detrics",
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1/..%2fmetrics",
    "/metrics/../v1/models",
    "//v1/models",
    "/metrics/..%2fv1/models",
    "/status",
    "/health",
    "/docs",
    "/openapi.json",
    "/tokenize",
    "/invocations",
    "/load",
    "/version",
    "/errors/502.json",
    "/readyz/",
    "/readyz/verbose",
    "/healthz/",
    "/./metrics",
    "/.//metrics",
    "/%2Fmetrics",
    "/%2f%2e%2fmetrics",
    "/metrics%2f",
    "/metrics?x=/v1/models",
    "/x/%2e%2e/metrics",
    "/assets/../metrics",
    "/public/%2e%2e/metrics",
    "/ws/socket.io/../../metrics",
    "/v1%2fmodels",
    "/%76%31/models",
    "/inference/v1/generate",
    "/server_info",
    "/ping",
]


@pytest.mark.parametrize("path", ["/", "/login", "/project/settings?language=zh-CN", "/public/logo.svg"])
async def test_the_page_is_answered_by_chat_ui(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    assert (await client.get(path)).json() == {"backend": "chat-ui"}
    assert (chat_ui.paths, gateway.paths) == ([path], [])


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/baidu%2FERNIE-4.5-0.3B-PT", "/v1/models?after=%E4%BD%A0&x=1"]
)
async def test_api_paths_and_queries_reach_the_gateway_as_sent(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    assert (await client.get(path)).json() == {"backend": "gateway"}
    assert (gateway.paths, chat_ui.paths) == ([path], [])


@pytest.mark.parametrize("path", PRIVATE)
async def test_inner_paths_reach_nothing(edge: Edge, gateway: Backend, chat_ui: Backend, path: str) -> None:
    answer = await raw_exchange(edge, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code": "not_found"' in answer
    assert gateway.paths + chat_ui.paths == []


@pytest.mark.parametrize("path", ["/../metrics", "/v1/%2e%2e/%2e%2e/metrics", "/v1/..%2f..%2fmetrics", "/metrics%00"])
async def test_what_climbs_out_of_everything_is_no_request(
    edge: Edge, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    answer = await raw_exchange(edge, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code": "bad_request"' in answer
    assert gateway.paths + chat_ui.paths == []


@pytest.mark.parametrize("path", ["/readyz", "/readyz?verbose", "/readyz?verbose=1&x=2", "/v1/../readyz?verbose"])
async def test_readiness_is_public_without_its_details(edge: Edge, gateway: Backend, path: str) -> None:
    answer = await raw_exchange(edge, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert gateway.paths == ["/readyz"]


async def test_healthz_speaks_of_nginx_alone(client: httpx.AsyncClient) -> None:
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_errors_of_the_gateway_pass_untouched(client: httpx.AsyncClient, gateway: Backend) -> None:
    body = {"error": {"message": "no", "type": "rate_limit_error", "param": None, "code": "rate_limited"}}

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response(body, status=429, headers={"Retry-After": "7", "Server-Timing": "gateway;dur=1"})

    gateway.handler = refuse
    answer = await client.post("/v1/chat/completions", json={})
    assert (answer.status_code, answer.json()) == (429, body)
    assert (answer.headers["retry-after"], answer.headers["server-timing"]) == ("7", "gateway;dur=1")


async def test_a_service_cannot_make_nginx_serve_its_own_files(client: httpx.AsyncClient, gateway: Backend) -> None:
    async def redirect(_request: web.Request) -> web.Response:
        return web.Response(text="mine", headers={"X-Accel-Redirect": "/errors/starting.html"})

    gateway.handler = redirect
    assert (await client.get("/v1/models")).text == "mine"


async def test_assets_are_fetched_once_and_kept_for_good(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    script = b"console.log('\xe4\xbd\xa0\xe5\xa5\xbd');" * 200

    async def compress(_request: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/javascript", "Vary": "Accept-Encoding, Origin"}
        return web.Response(body=gzip.compress(script), headers=headers)

    chat_ui.handler = compress
    headers = {"Accept-Encoding": "gzip, br", "Origin": "http://elsewhere.example", "Cookie": "session=secret"}
    first = await client.get("/assets/index-abc.js", headers=headers)
    second = await client.get("/assets/index-abc.js?again", headers={"Accept-Encoding": "identity"})
    assert first.content == second.content == script
    assert (first.headers.get("content-encoding"), second.headers.get("content-encoding")) == ("gzip", None)
    assert second.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert len(chat_ui.seen) == 1
    assert not {"Origin", "Cookie"} & set(chat_ui.seen[0].headers)


async def test_an_absent_asset_is_not_remembered(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    async def absent(_request: web.Request) -> web.Response:
        return web.json_response({"detail": "File not found"}, status=404)

    chat_ui.handler = absent
    for _ in range(2):
        answer = await client.get("/assets/index-new.js")
        assert answer.status_code == 404
        assert "cache-control" not in answer.headers
    assert len(chat_ui.seen) == 2


async def test_connections_to_the_services_are_kept(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend
) -> None:
    # Each of nginx's two workers has its own; eight requests over one client connection meet one worker.
    for _ in range(8):
        await client.get("/v1/models")
        await client.get("/")
    assert (len(gateway.connections), len(chat_ui.connections)) == (1, 1)


async def test_the_page_is_compressed_by_nginx(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.json_response({"text": "你好" * 1000})

    chat_ui.handler = page
    answer = await client.get("/project/translations", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json() == {"text": "你好" * 1000}
