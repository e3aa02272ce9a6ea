"""The status page from outside: by setting, and nothing of what lies beside it."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge
from tests.edge.wire import raw_exchange

pytestmark = pytest.mark.edge

SHOWN = ["/status", "/status/figures", "/status/page.css", "/status/page.js"]
HIDDEN = ["/status/", "/status/targets", "/status/figures/", "/status/x", "/statuses", "/status/page.css/x"]


@pytest.fixture(scope="module")
def open_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """An edge that shows the page."""
    edge = Edge(tmp_path_factory.mktemp("open"), NGINX_STATUS_PAGE="on")
    edge.start()
    yield edge
    assert edge.stop() == 0


@pytest.fixture
async def behind(open_edge: Edge) -> AsyncIterator[Backend]:
    async with serve(Backend("gateway"), open_edge.gateway_port) as backend:
        yield backend


@pytest.mark.parametrize("path", [*SHOWN, *HIDDEN])
async def test_by_default_there_is_none(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    assert (await client.get(path)).status_code == 404
    assert (gateway.paths, chat_ui.paths) == ([], [])


@pytest.mark.parametrize("path", SHOWN)
async def test_by_setting_everybody_sees_it(open_edge: Edge, behind: Backend, path: str) -> None:
    async with httpx.AsyncClient(base_url=open_edge.url, trust_env=False) as client:
        assert (await client.get(path, params={"x": "1"})).json() == {"backend": "gateway"}
    assert behind.paths == [path]


@pytest.mark.parametrize(
    "path", [*HIDDEN, "/status/../metrics", "/status/%2e%2e/metrics", "/status/x/../targets", "//status/targets"]
)
async def test_and_nothing_else_of_the_gateway(open_edge: Edge, behind: Backend, path: str) -> None:
    answer = await raw_exchange(open_edge, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert b" 404 " in answer.partition(b"\r\n")[0]
    assert behind.paths == []
