"""What the services are told about a client, what clients are told, and what is logged."""

import json

import aiohttp
import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend
from tests.edge.server import Edge
from tests.edge.wire import raw_exchange

pytestmark = pytest.mark.edge

FORGED = {
    "X-Forwarded-For": "203.0.113.7, 10.0.0.1",
    "X-Real-IP": "203.0.113.7",
    "Forwarded": "for=203.0.113.7",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Port": "1",
    "X-Forwarded-Prefix": "/evil",
    "X-End-User-Address": "203.0.113.7",
    "Proxy": "http://evil.example",
}
SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "same-origin",
}


@pytest.mark.parametrize("path", ["/", "/v1/models", "/readyz", "/ws/socket.io/", "/assets/forged.js"])
async def test_a_client_cannot_say_where_it_comes_from(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    await client.get(path, headers=FORGED)
    (request,) = gateway.seen + chat_ui.seen
    assert request.headers.getall("X-Forwarded-For") == ["127.0.0.1"]
    assert request.headers.getall("X-Real-IP") == ["127.0.0.1"]
    assert request.headers.getall("X-Forwarded-Proto") == ["http"]
    kept = {"X-Forwarded-For", "X-Real-IP", "X-Forwarded-Proto"}
    assert not (FORGED.keys() - kept) & set(request.headers)


async def test_nor_can_one_that_opens_the_pages_websocket(edge: Edge, chat_ui: Backend) -> None:
    async def accept(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        return socket

    chat_ui.handler = accept
    url = f"{edge.url}/ws/socket.io/?EIO=4&transport=websocket"
    async with aiohttp.ClientSession() as session, session.ws_connect(url, headers=FORGED):
        (request,) = chat_ui.seen
    assert request.headers.getall("X-Forwarded-For") == ["127.0.0.1"]
    assert request.headers.getall("X-Real-IP") == ["127.0.0.1"]
    assert not {"Forwarded", "X-End-User-Address"} & set(request.headers)


async def test_many_headers_of_one_name_are_no_way_around(edge: Edge, gateway: Backend) -> None:
    forged = b"".join(b"%s: 203.0.113.%d\r\n" % (name.encode(), n) for name in FORGED for n in range(20))
    await raw_exchange(edge, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + forged + b"\r\n")
    (request,) = gateway.seen
    assert request.headers.getall("X-Forwarded-For") == ["127.0.0.1"]
    assert "203.0.113" not in str(request.headers)


@pytest.mark.parametrize("host", ["chat.example", "chat.example:8443", "[2001:db8::1]:8080"])
async def test_host_keeps_its_port(client: httpx.AsyncClient, gateway: Backend, host: str) -> None:
    await client.get("/v1/models", headers={"Host": host})
    assert [request.headers["Host"] for request in gateway.seen] == [host]


async def test_what_follows_a_host_is_cut_off(edge: Edge, gateway: Backend) -> None:
    await raw_exchange(edge, b"GET /v1/models HTTP/1.1\r\nHost: chat.example:x'y\r\nConnection: close\r\n\r\n")
    # Newer nginx refuses such a request.
    assert [request.headers["Host"] for request in gateway.seen] in (["chat.example"], [])


async def test_a_sane_request_id_is_kept_everywhere(edge: Edge, client: httpx.AsyncClient, gateway: Backend) -> None:
    answer = await client.get("/v1/models", headers={"X-Request-Id": "trace-1.a_B"})
    assert answer.headers.get_list("x-request-id") == ["trace-1.a_B"]
    assert gateway.seen[0].headers.getall("X-Request-Id") == ["trace-1.a_B"]
    assert edge.logged("trace-1.a_B")["status"] == 200


@pytest.mark.parametrize("insane", [None, "", "a b", 'x","y":"', "x" * 129, "<script>"])
async def test_any_other_request_id_is_replaced(
    edge: Edge, client: httpx.AsyncClient, gateway: Backend, insane: str | None
) -> None:
    answer = await client.get("/v1/models", headers={} if insane is None else {"X-Request-Id": insane})
    (request_id,) = answer.headers.get_list("x-request-id")
    assert len(request_id) == 32
    assert gateway.seen[0].headers.getall("X-Request-Id") == [request_id]
    assert edge.logged(request_id)["path"] == "/v1/models"


async def test_the_services_own_id_wins(client: httpx.AsyncClient, gateway: Backend) -> None:
    async def rename(_request: web.Request) -> web.Response:
        return web.Response(headers={"X-Request-Id": "the-gateways"})

    gateway.handler = rename
    assert (await client.get("/v1/models")).headers.get_list("x-request-id") == ["the-gateways"]


@pytest.mark.parametrize(("path", "status"), [("/metrics", 404), ("/v1/models", 502), ("/", 502)])
async def test_nginx_own_errors_carry_the_id(edge: Edge, client: httpx.AsyncClient, path: str, status: int) -> None:
    answer = await client.get(path)
    (request_id,) = answer.headers.get_list("x-request-id")
    entry = edge.logged(request_id)
    assert (answer.status_code, entry["status"], entry["path"]) == (status, status, path)


@pytest.mark.parametrize("path", ["/", "/v1/models", "/assets/a.js", "/healthz", "/readyz", "/metrics"])
async def test_security_headers_are_on_every_answer(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    answer = await client.get(path)
    assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY
    assert answer.headers["server"] == "nginx"
    assert "access-control-allow-origin" not in answer.headers


async def test_security_headers_are_on_errors_too(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", headers={"Accept": "text/html"})
    assert answer.status_code == 502
    assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY


async def test_the_log_has_no_query_key_or_prompt(edge: Edge, client: httpx.AsyncClient, gateway: Backend) -> None:
    await client.post(
        "/v1/chat/completions?token=s3cret",
        headers={"Authorization": "Bearer s3cret", "Referer": "http://x/?s3cret", "X-Request-Id": "quiet"},
        json={"messages": [{"role": "user", "content": "s3cret"}]},
    )
    entry = edge.logged("quiet")
    assert "s3cret" not in json.dumps(entry)
    assert (entry["method"], entry["path"], entry["client"]) == ("POST", "/v1/chat/completions", "127.0.0.1")
    assert entry["upstream"] == f"127.0.0.1:{edge.gateway_port}"
    assert 0 <= entry["duration_seconds"] < 10


async def test_health_checks_are_not_logged(edge: Edge, client: httpx.AsyncClient) -> None:
    await client.get("/healthz", headers={"X-Request-Id": "health-check"})
    await client.get("/metrics", headers={"X-Request-Id": "after-health-check"})
    edge.logged("after-health-check")
    assert "health-check" not in [entry["request_id"] for entry in edge.log()]
