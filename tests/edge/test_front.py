"""Other proxies in front, the names that are served, and several copies behind."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from tests.conftest import free_ports
from tests.edge.backend import Backend, serve
from tests.edge.server import Edge, StartEdge
from tests.edge.wire import raw_exchange
from tests.fakes.gateway import eventually

pytestmark = pytest.mark.edge

NAMES = "chat.example.org,*.example.com"
HTML = {"Accept": "text/html"}
PEOPLE = 40


@contextlib.asynccontextmanager
async def behind(edge: Edge) -> AsyncIterator[Backend]:
    async with serve(Backend("gateway"), edge.gateway_port) as gateway:
        yield gateway


def client_from(edge: Edge, address: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(base_url=edge.url, transport=transport, trust_env=False)


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", "198.51.100.9, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", "203.0.113.7, 10.1.2.3", "203.0.113.7"),
        ("127.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("127.0.0.1", "nonsense", "127.0.0.1"),
        ("127.0.0.2", "203.0.113.7", "127.0.0.2"),
    ],
    ids=["one hop", "a claim before it", "two proxies", "IPv6", "nonsense", "not trusted"],
)
async def test_who_the_client_is_by_a_trusted_proxys_word(
    start_edge: StartEdge, peer: str, forwarded: str, client: str
) -> None:
    edge = start_edge(NGINX_TRUSTED_PROXIES="127.0.0.1,10.0.0.0/8")
    async with behind(edge) as gateway, client_from(edge, peer) as http:
        headers = {"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https", "X-Request-Id": "hop"}
        await http.get("/v1/models", headers=headers)
    seen = gateway.seen[0].headers
    assert (seen.getall("X-Forwarded-For"), seen.getall("X-Real-IP")) == ([client], [client])
    assert seen.getall("X-Forwarded-Proto") == ["https" if peer == "127.0.0.1" else "http"]
    assert edge.logged("hop")["client"] == client


@pytest.mark.parametrize("claim", ["proxy https", "https", "HTTPS", "https, http"])
async def test_nobody_else_says_how_a_client_came(start_edge: StartEdge, claim: str) -> None:
    edge = start_edge(NGINX_TRUSTED_PROXIES="10.0.0.0/8")
    async with behind(edge) as gateway, client_from(edge) as client:
        await client.get("/v1/models", headers={"X-Forwarded-Proto": claim})
    assert gateway.seen[0].headers.getall("X-Forwarded-Proto") == ["http"]


async def test_clients_behind_a_trusted_proxy_are_counted_one_by_one(tmp_path: Path) -> None:
    edge = Edge(tmp_path, NGINX_TRUSTED_PROXIES="127.0.0.1", NGINX_RATE_LIMIT_REQUESTS="1/second")
    edge.shorten("conf.d/shield.inc", "limit_req zone=rate", "burst=3 nodelay")
    edge.start()
    async with behind(edge), client_from(edge) as client:

        async def ask(address: str) -> int:
            return (await client.get("/v1/models", headers={"X-Forwarded-For": address})).status_code

        answers = await asyncio.gather(*(ask("203.0.113.7") for _ in range(50)))
        assert answers.count(429) > 0
        assert await ask("203.0.113.8") == 200
    assert edge.stop() == 0


@pytest.mark.parametrize(
    "host", ["chat.example.org", "Chat.Example.ORG:8080", "a.example.com", "127.0.0.1", "nginx:80"]
)
async def test_names_that_were_given_are_served(start_edge: StartEdge, host: str) -> None:
    edge = start_edge(NGINX_SERVER_NAMES=NAMES)
    async with behind(edge), client_from(edge) as client:
        assert (await client.get("/v1/models", headers={"Host": host})).json() == {"backend": "gateway"}


@pytest.mark.parametrize("host", ["example.com", "evil.example", "chat.example.org.evil.example", "192.0.2.1", "_"])
async def test_all_others_are_dropped_without_a_word(start_edge: StartEdge, host: str) -> None:
    edge = start_edge(NGINX_SERVER_NAMES=NAMES)
    asked = [f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n" for path in ("/v1/models", "/healthz", "/")]
    async with behind(edge) as gateway:
        # The last as old clients and scanners ask.
        for request in (*asked, "GET / HTTP/1.0\r\n\r\n"):
            with pytest.raises(ConnectionResetError):
                await raw_exchange(edge, request.encode())
    assert gateway.seen == []
    await eventually(lambda: [entry["status"] for entry in edge.log()] == [444] * 4)


@contextlib.asynccontextmanager
async def copies(number: int) -> AsyncIterator[tuple[str, list[Backend]]]:
    """Run several copies of a service; gives their addresses as a setting, and them."""
    ports = list(free_ports([str(n) for n in range(number)]).values())
    async with contextlib.AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(serve(Backend(str(port)), port)) for port in ports]
        yield ",".join(f"127.0.0.1:{port}" for port in ports), backends


async def test_several_gateways_share_the_work_and_one_that_is_gone_is_passed_over(start_edge: StartEdge) -> None:
    async with copies(2) as (addresses, gateways):
        edge = start_edge(NGINX_GATEWAY_ADDRESS=f"{addresses},127.0.0.1:1")
        async with client_from(edge) as client:
            answers = [await client.post("/v1/chat/completions", json={}) for _ in range(12)]
    assert {answer.status_code for answer in answers} == {200}
    assert min(len(gateway.seen) for gateway in gateways) >= 3
    assert sum(len(gateway.seen) for gateway in gateways) == 12


async def test_a_gateway_that_is_busy_gets_no_more(start_edge: StartEdge) -> None:
    release = asyncio.Event()

    async def wait(_request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with copies(2) as (addresses, gateways):
        edge = start_edge(NGINX_GATEWAY_ADDRESS=addresses)
        for gateway in gateways:
            gateway.handler = wait
        async with client_from(edge) as client:
            asked = [asyncio.create_task(client.post("/v1/chat/completions", json={})) for _ in range(10)]
            await eventually(lambda: sum(len(gateway.seen) for gateway in gateways) == len(asked))
            assert [len(gateway.seen) for gateway in gateways] == [5, 5]
            release.set()
            await asyncio.gather(*asked)


async def test_a_person_stays_at_one_copy_of_the_page(start_edge: StartEdge) -> None:
    """Each browser by its own number, though all come from one address; what has no cookie stays by its address."""
    async with copies(3) as (addresses, pages):
        edge = start_edge(NGINX_CHAT_UI_ADDRESS=addresses)
        places = Counter[str]()
        for _ in range(PEOPLE):
            async with client_from(edge) as browser:
                opened = await browser.get("/", headers=HTML)
                (cookie,) = opened.headers.get_list("set-cookie")
                assert cookie.endswith("; Path=/; HttpOnly; SameSite=Lax")
                asked = ["/ws/socket.io/?EIO=4&transport=polling", "/project/action", "/set-session-cookie", "/"]
                answers = [await browser.post(path, headers=HTML) for path in asked]
                assert len({answer.json()["backend"] for answer in answers}) == 1
                # The number is given once.
                assert [name for answer in answers for name in answer.headers if name == "set-cookie"] == []
                places[answers[0].json()["backend"]] += 1
        assert len(places) == 3
        async with client_from(edge) as script:
            answers = [await script.get("/project/settings") for _ in range(10)]
        assert len({answer.json()["backend"] for answer in answers}) == 1
        assert not any("set-cookie" in answer.headers for answer in answers)
        assert len(pages) == 3


async def test_people_of_a_copy_that_is_gone_find_another(start_edge: StartEdge) -> None:
    async with copies(1) as (addresses, _):
        edge = start_edge(NGINX_CHAT_UI_ADDRESS=f"{addresses},127.0.0.1:1,127.0.0.1:2")
        for _ in range(10):
            async with client_from(edge) as browser:
                assert (await browser.get("/", headers=HTML)).status_code == 200
                assert (await browser.get("/ws/socket.io/?EIO=4&transport=polling")).status_code == 200


async def test_a_made_up_number_is_replaced(start_edge: StartEdge) -> None:
    async with copies(1) as (addresses, _):
        edge = start_edge(NGINX_CHAT_UI_ADDRESS=addresses)
        async with client_from(edge) as browser:
            answer = await browser.get("/", headers=HTML | {"Cookie": "chat_place=x; other=1"})
            assert "chat_place=" in answer.headers["set-cookie"]
