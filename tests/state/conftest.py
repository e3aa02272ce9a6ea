"""One server for all of these tests, empty for each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import free_ports
from tests.fakes.fixtures import engine, gateway, pytest_asyncio_loop_factories, quick_looks
from tests.state.server import Server

__all__ = ["engine", "gateway", "pytest_asyncio_loop_factories", "quick_looks"]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here: it needs a server that is not Python's."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.state)


@pytest.fixture(scope="session")
def server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("valkey"), free_ports(["valkey"])["valkey"])
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def patient_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for answers than 50 ms, which a busy machine can take for itself; what is tested is not that."""
    monkeypatch.setattr("gateway.limits.valkey.ANSWER_SECONDS", 3.0)


@pytest.fixture
def valkey(server_process: Server) -> Server:
    server_process.command("FLUSHALL")
    return server_process


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may harm."""
    server = Server(tmp_path, free_ports(["valkey"])["valkey"])
    server.start()
    yield server
    server.stop()
