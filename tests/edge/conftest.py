"""A real nginx for the session, and fresh backends behind it for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge, StartEdge, running_edges


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """Nginx, started before anything behind it."""
    edge = Edge(tmp_path_factory.mktemp("edge"))
    edge.start()
    yield edge
    assert edge.stop() == 0
    log = (edge.prefix / "error.log").read_text()
    assert "[emerg]" not in log
    assert "[crit]" not in log
    assert "[alert]" not in log


@pytest.fixture
def start_edge(tmp_path: Path) -> Iterator[StartEdge]:
    """Start an nginx with settings of the test's own."""
    with running_edges() as run:
        yield lambda **settings: run(Edge(tmp_path, **settings))


@pytest.fixture
async def gateway(edge: Edge) -> AsyncIterator[Backend]:
    """What stands at the gateway's address."""
    async with serve(Backend("gateway"), edge.gateway_port) as backend:
        yield backend


@pytest.fixture
async def chat_ui(edge: Edge) -> AsyncIterator[Backend]:
    """What stands at the chat page's address."""
    async with serve(Backend("chat-ui"), edge.chat_port) as backend:
        yield backend


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    """A client outside."""
    async with httpx.AsyncClient(base_url=edge.url, timeout=10, trust_env=False) as client:
        yield client
