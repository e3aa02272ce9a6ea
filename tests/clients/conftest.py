"""The fakes' fixtures, and the three clients."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.clients.driver import Clients
from tests.clients.langchain_sdk import LangChain
from tests.clients.node_sdk import NodeSdk
from tests.clients.python_sdk import PythonSdk
from tests.fakes.fixtures import engine, gateway, pytest_asyncio_loop_factories, quick_looks
from tests.fakes.gateway import NO_TLS

__all__ = ["engine", "gateway", "pytest_asyncio_loop_factories", "quick_looks"]


@pytest.fixture(scope="session")
def node_sdk() -> Iterator[NodeSdk]:
    with NodeSdk.running() as client:
        yield client


@pytest.fixture
async def python_sdk(http: httpx.AsyncClient) -> PythonSdk:
    return PythonSdk(http)


@pytest.fixture
async def langchain(http: httpx.AsyncClient) -> AsyncIterator[LangChain]:
    with httpx.Client(trust_env=False, verify=NO_TLS) as sync_http:
        yield LangChain(http, sync_http)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """Without the environment's proxies, and without half a second for certificates."""
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as client:
        yield client


@pytest.fixture
async def clients(python_sdk: PythonSdk, node_sdk: NodeSdk, langchain: LangChain) -> Clients:
    return Clients(python_sdk, node_sdk, langchain)
