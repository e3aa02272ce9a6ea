"""The coarse limits in front of everything: what a flood meets, who is not touched by it, and how it is told."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge, StartEdge, running_edges

pytestmark = pytest.mark.edge

SOCKET = "/ws/socket.io/?EIO=4&transport="
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
BURST = 3
ANOTHER = "127.0.0.2"


@pytest.fixture
def start_edge(tmp_path: Path) -> Iterator[StartEdge]:
    """Start an nginx with settings of the test's own, and a burst that a test can use up."""

    def prepared(rate: str = "1/second", connections: str = "off") -> Edge:
        edge = Edge(tmp_path, NGINX_RATE_LIMIT_REQUESTS=rate, NGINX_MAX_CONNECTIONS_PER_CLIENT=connections)
        edge.shorten("conf.d/shield.inc", "limit_req zone=rate", f"burst={BURST} nodelay")
        # Stands for clients with addresses that this machine does not have.
        address = "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Address;"
        (edge.prefix / "conf.d/test.conf").write_text(address)
        return edge

    with running_edges(without=("error",)) as run:
        yield lambda *settings, **named: run(prepared(*settings, **named))


@contextlib.asynccontextmanager
async def behind(edge: Edge) -> AsyncIterator[tuple[Backend, Backend]]:
    async with (
        serve(Backend("gateway"), edge.gateway_port) as gateway,
        serve(Backend("chat-ui"), edge.chat_port) as chat_ui,
    ):
        yield gateway, chat_ui


def client_from(edge: Edge, address: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(base_url=edge.url, transport=transport, trust_env=False)


async def statuses(client: httpx.AsyncClient, number: int, path: str = "/v1/models", at: str = "") -> Counter[int]:
    headers = {"X-Test-Address": at} if at else {}
    answers = await asyncio.gather(*(client.get(path, headers=headers) for _ in range(number)))
    return Counter(answer.status_code for answer in answers)


async def test_a_flood_is_refused_as_the_api_refuses_and_no_service_hears_of_it(start_edge: StartEdge) -> None:
    edge = start_edge()
    async with behind(edge) as (gateway, _), client_from(edge) as client, client_from(edge, ANOTHER) as another:
        assert (await statuses(client, 30))[429] >= 30 - BURST - 3  # and one more for each second that it took
        answer = await client.post("/v1/chat/completions", json={}, headers=BROWSER | {"X-Request-Id": "flood"})
        reached = len(gateway.seen)
        assert (answer.status_code, answer.headers["content-type"]) == (429, "application/json")
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-request-id"] == "flood"
        assert answer.headers["cache-control"] == "no-store"
        assert edge.logged("flood")["status"] == 429
        assert reached <= BURST + 3
        assert await statuses(another, BURST + 1) == {200: BURST + 1}


async def test_who_waits_as_long_as_told_gets_in(start_edge: StartEdge) -> None:
    edge = start_edge()
    async with behind(edge), client_from(edge) as client:
        while (answer := await client.get("/v1/models")).status_code == 200:
            pass
        await asyncio.sleep(int(answer.headers["retry-after"]))
        assert (await client.get("/v1/models")).status_code == 200


async def test_a_person_sees_a_page_that_tries_again(start_edge: StartEdge) -> None:
    edge = start_edge()
    async with behind(edge), client_from(edge) as client:
        await statuses(client, 20, "/")
        answer = await client.get("/", headers=BROWSER)
        assert (answer.status_code, answer.headers["content-type"]) == (429, "text/html; charset=utf-8")
        assert "Too many requests" in answer.text
        assert '<meta http-equiv="refresh" content="3">' in answer.text
        assert answer.headers["retry-after"] == "1"
        program = await client.get("/project/settings", headers={"Accept": "application/json"})
        assert (program.status_code, program.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await client.get(SOCKET + "polling")).status_code == 429


@pytest.mark.parametrize("path", ["/assets/a.js", "/public/page.css", "/healthz", "/readyz"])
async def test_parts_of_the_page_and_health_are_never_refused(start_edge: StartEdge, path: str) -> None:
    edge = start_edge()
    async with behind(edge), client_from(edge) as client:
        assert (await statuses(client, 20))[429]
        assert await statuses(client, 50, path) == {200: 50}


async def test_ipv6_counts_by_the_64_bits_that_a_host_has(start_edge: StartEdge) -> None:
    edge = start_edge()
    async with behind(edge), client_from(edge) as client:
        for host in range(30):
            await statuses(client, 1, at=f"2001:db8:1:2:{host:x}::a")
        assert await statuses(client, 1, at="2001:db8:1:2:ffff:ffff:ffff:ffff") == {429: 1}
        for network in range(20):
            # 0a is a line break, 00 an end of text: bytes of an address are no text.
            assert await statuses(client, 1, at=f"2001:db8:a0a:{network:x}00::1") == {200: 1}


async def test_a_client_holds_so_many_connections_and_no_more(start_edge: StartEdge) -> None:
    async def hold(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    edge = start_edge(rate="off", connections="2")
    url = edge.url + SOCKET + "websocket"
    async with behind(edge) as (_, chat_ui), client_from(edge) as client, aiohttp.ClientSession() as session:
        chat_ui.handler = hold
        first = await session.ws_connect(url)
        async with session.ws_connect(url):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="429"):
                await session.ws_connect(url)
            refused = await client.get("/v1/models")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            async with client_from(edge, ANOTHER) as another:
                assert await statuses(another, 1) == {200: 1}
            await first.close()
            async with asyncio.timeout(5):
                # nginx learns of the end a moment later.
                while (await client.get("/v1/models")).status_code == 429:
                    pass


async def test_off_counts_nobody(start_edge: StartEdge) -> None:
    edge = start_edge(rate="off")
    async with behind(edge), client_from(edge) as client:
        assert await statuses(client, 100) == {200: 100}


async def test_the_gateways_own_refusal_goes_through_untouched(start_edge: StartEdge) -> None:
    body = {"error": {"message": "m", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}}

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response(body, status=429, headers={"Retry-After": "17", "x-ratelimit-limit-requests": "5"})

    edge = start_edge()
    async with behind(edge) as (gateway, _), client_from(edge) as client:
        gateway.handler = refuse
        answer = await client.post("/v1/chat/completions", json={})
    assert (answer.status_code, json.loads(answer.text)) == (429, body)
    assert answer.headers.get_list("retry-after") == ["17"]
    assert answer.headers["x-ratelimit-limit-requests"] == "5"
