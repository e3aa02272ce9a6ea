"""All of it below a path, beside others on one host: the API, health, the page and everything that the page loads."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import clean_environment
from tests.edge.backend import Backend, serve
from tests.edge.person import Person
from tests.edge.server import Edge
from tests.edge.wire import raw_exchange
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import CHAT, eventually, running_gateway

pytestmark = pytest.mark.edge

BASE = "/ai/ernie"
START_TIMEOUT_SECONDS = 120.0
ANSWER = "你好, world 🔥"
BESIDE = [
    "/v1/models",
    "/readyz",
    "/ai/v1/models",
    "/ai/erniev1/models",
    "/ws/socket.io/",
    "/assets/x.js",
    "/public/page.css",
    "/metrics",
    f"{BASE}/metrics",
    f"{BASE}//metrics",
    f"{BASE}/%6detrics",
    f"{BASE}/v1",
    f"{BASE}/v1/../metrics",
    f"{BASE}/../v1/models",
    f"{BASE}/docs",
    "/status",
    f"{BASE}/status",
    f"/x/..{BASE}/v1/models",
]


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    edge = Edge(tmp_path / "nginx", NGINX_BASE_PATH=BASE)
    edge.start()
    yield edge
    assert edge.stop() == 0


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
async def backends(edge: Edge) -> AsyncIterator[tuple[Backend, Backend]]:
    async with (
        serve(Backend("gateway"), edge.gateway_port) as gateway,
        serve(Backend("chat-ui"), edge.chat_port) as chat_ui,
    ):
        yield gateway, chat_ui


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/baidu%2FERNIE-4.5?x=%2F&y=1", "/v1/a//b"])
async def test_the_gateway_sees_no_path_but_its_own(
    client: httpx.AsyncClient, backends: tuple[Backend, Backend], path: str
) -> None:
    assert (await client.get(BASE + path)).json() == {"backend": "gateway"}
    assert backends[0].paths == [path]


async def test_readiness_below_health_anywhere(client: httpx.AsyncClient, backends: tuple[Backend, Backend]) -> None:
    assert (await client.get(f"{BASE}/readyz?verbose")).json() == {"backend": "gateway"}
    assert backends[0].paths == ["/readyz"]
    assert [(await client.get(path)).text for path in ("/healthz", f"{BASE}/healthz")] == ["ok\n"] * 2


async def test_the_status_page_is_below_it_by_setting(tmp_path: Path) -> None:
    edge = Edge(tmp_path / "open", NGINX_BASE_PATH=BASE, NGINX_STATUS_PAGE="on")
    edge.start()
    try:
        async with (
            serve(Backend("gateway"), edge.gateway_port) as gateway,
            httpx.AsyncClient(base_url=edge.url, trust_env=False) as client,
        ):
            shown = ["/status", "/status/figures", "/status/page.js"]
            assert [(await client.get(BASE + path)).status_code for path in shown] == [200] * 3
            hidden = ["/status", f"{BASE}/status/targets", f"{BASE}/statuses", "/status/figures"]
            assert [(await client.get(path)).status_code for path in hidden] == [404] * 4
        assert gateway.paths == shown
    finally:
        assert edge.stop() == 0


async def test_the_page_sees_the_whole_path(client: httpx.AsyncClient, backends: tuple[Backend, Backend]) -> None:
    paths = [f"{BASE}/", f"{BASE}/assets/a.js", f"{BASE}/public/a.css", f"{BASE}/ws/socket.io/?EIO=4"]
    for path in paths:
        assert (await client.get(path)).json() == {"backend": "chat-ui"}
    assert backends[1].paths == paths


@pytest.mark.parametrize("path", BESIDE)
async def test_beside_it_there_is_nothing(edge: Edge, backends: tuple[Backend, Backend], path: str) -> None:
    answer = await raw_exchange(edge, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code": "not_found"' in answer
    assert backends[0].paths + backends[1].paths == []


async def test_who_comes_too_short_is_led_there(client: httpx.AsyncClient, backends: tuple[Backend, Backend]) -> None:
    assert (await client.get("/")).headers["location"] == f"{BASE}/"
    assert (await client.get(f"{BASE}?x=1")).headers["location"] == f"{BASE}/?x=1"


async def test_errors_are_json_for_the_api_and_a_page_for_people(client: httpx.AsyncClient) -> None:
    html = {"Accept": "text/html"}
    assert (await client.get(f"{BASE}/v1/models", headers=html)).json()["error"]["code"] == "bad_gateway"
    assert "正在启动" in (await client.get(f"{BASE}/", headers=html)).text


@contextlib.asynccontextmanager
async def chat_page(edge: Edge, folder: Path) -> AsyncIterator[None]:
    log = folder / "chat-ui.log"
    environment = clean_environment(
        CHAT_UI_PORT=str(edge.chat_port),
        CHAT_UI_GATEWAY_URL=f"http://127.0.0.1:{edge.gateway_port}",
        CHAT_UI_BASE_PATH=BASE,
        TMPDIR=str(folder),
    )
    command = [sys.executable, "-m", "chat_ui"]
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(*command, env=environment, cwd="/", stdout=output, stderr=output)
        try:
            await eventually(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            health = await asyncio.create_subprocess_exec(*command, "health", env=environment, cwd="/")
            assert await health.wait() == 0
            yield
        finally:
            process.terminate()
            await process.wait()
    assert "Traceback" not in log.read_text()


async def test_the_real_page_works_below_a_path(edge: Edge, client: httpx.AsyncClient, tmp_path: Path) -> None:
    async with (
        FakeEngine() as engine,
        running_gateway(engine, port=edge.gateway_port),
        chat_page(edge, tmp_path),
    ):
        page = await client.get(f"{BASE}/", headers={"Accept": "text/html"})
        own = [address for address in re.findall(r' (?:src|href)="([^"]+)"', page.text) if address != "/"]
        assert len(own) > 5
        for address in own:
            assert address.startswith(f"{BASE}/"), address
            loaded = await client.get(address)
            assert (address, loaded.status_code) == (address, 200)
            # Chainlit answers any unknown path with the page itself.
            assert "text/html" not in loaded.headers["content-type"], address
            if "/assets/" in address:
                assert loaded.headers["cache-control"] == "public, max-age=31536000, immutable"
        answer = await client.post(f"{BASE}/v1/chat/completions", json=CHAT)
        assert answer.json()["choices"][0]["message"]["content"] == ANSWER
        async with Person(edge.url, "127.0.0.1", {"Accept-Language": "en-US"}, base_path=BASE) as person:
            assert await person.ask("你好") == ANSWER
        offered = await client.get(f"{BASE}/history/export", headers={"Accept": "text/html"})
        files = [str(offered.url.join(link)) for link in re.findall(r'href="([^"]+)" download', offered.text)]
        assert [file.removeprefix(edge.url) for file in files] == [
            f"{BASE}/history/export/all.md",
            f"{BASE}/history/export/all.json",
        ]
        assert [(await client.get(file)).headers["content-disposition"][:10] for file in files] == ["attachment"] * 2
