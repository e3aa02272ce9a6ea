"""What the gateway takes for granted of vLLM, read in the installed vLLM's own sources."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway.upstreams.connections import KEEPALIVE_SECONDS

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import RunningGateway, running_gateway

from .conftest import ROOT

pytestmark = pytest.mark.engine

PASSED_ON = {"/v1/chat/completions", "/v1/completions"}
# The gateway answers these itself.
OWN = {"/v1/models", "/metrics", "/readyz", "/tokenize"}
ROUTE = re.compile(r"@\w*(?:router|app)\.(?:get|post|put|patch|delete|head|api_route)\(\s*\"(/[^\"]*)\"")


def vllm() -> Path:
    """Return the folder of the installed vLLM."""
    (folder,) = (ROOT / ".venv-vllm/lib").glob("python3*/site-packages/vllm")
    return folder


@pytest.fixture
async def before_nothing() -> AsyncIterator[tuple[RunningGateway, FakeEngine]]:
    async with FakeEngine() as engine, running_gateway(engine) as gateway:
        yield gateway, engine


async def test_no_route_of_vllm_but_the_allowed_ones_is_reached(
    before_nothing: tuple[RunningGateway, FakeEngine],
) -> None:
    gateway, engine = before_nothing
    sources = (vllm() / "entrypoints").rglob("*.py")
    paths = {path for source in sources for path in ROUTE.findall(source.read_text(encoding="utf-8"))}
    assert paths > PASSED_ON | {"/v1/models", "/invocations", "/tokenize", "/load", "/sleep", "/collective_rpc"}
    assert len(paths) > 50
    asked = [(method, path) for path in sorted(paths - PASSED_ON - OWN) for method in ("GET", "POST")]
    answers = await asyncio.gather(
        *(gateway.client.request(method, re.sub(r"\{\w+(?::\w+)?\}", "x", path), json={}) for method, path in asked)
    )
    reached = [call for call, answer in zip(asked, answers, strict=True) if answer.status_code != 404]
    assert reached == []
    assert engine.calls == []


def test_the_gateway_lets_go_of_an_idle_connection_before_vllm_does() -> None:
    """A POST on a connection that is just being closed would be lost, and must not be sent twice."""
    found = re.search(r'"VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "(\d+)"', (vllm() / "envs.py").read_text(encoding="utf-8"))
    assert found, "vLLM names its setting otherwise now"
    assert int(found[1]) > KEEPALIVE_SECONDS + 1
