"""The fixtures of tests/api and tests/faults: a sound engine, and a gateway before it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import RunningGateway, running_gateway


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Callable[[], Any]]:
    """Run on the loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let uvicorn look oftener than ten times a second whether to stop: that took half the time of these tests."""
    looking = SimpleNamespace(**vars(asyncio))
    looking.sleep = lambda seconds: asyncio.sleep(seconds / 20)
    monkeypatch.setattr("uvicorn.server.asyncio", looking)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as fake:
        yield fake


@pytest.fixture
async def gateway(engine: FakeEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine) as running:
        yield running
