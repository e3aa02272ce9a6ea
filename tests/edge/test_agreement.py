"""The gateway's question to itself through the real nginx: what it finds and says, and that nobody waits for it."""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.edge.backend import Backend, serve
from tests.edge.server import Edge
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import RunningGateway, eventually, running_gateway

pytestmark = pytest.mark.edge

LOGGER = "gateway.agreement"
ASKED_FROM = "127.0.0.2"
METRIC = "gateway_edge_disagreement"
Findings = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    """An nginx that is not started yet."""
    edge = Edge(tmp_path / "nginx")
    yield edge
    edge.stop_if_started()


@pytest.fixture
def findings(caplog: pytest.LogCaptureFixture) -> Findings:
    """What was said so far: level and finding."""
    caplog.set_level(logging.INFO, logger=LOGGER)
    return lambda: [(record.levelname, record.message) for record in caplog.records if record.name == LOGGER]


def fields(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The fields of what was said last."""
    said: dict[str, Any] = [record.__dict__ for record in caplog.records if record.name == LOGGER][-1]["fields"]
    return said


@contextlib.asynccontextmanager
async def gateway_behind(edge: Edge, **settings: str) -> AsyncIterator[RunningGateway]:
    async with (
        FakeEngine() as engine,
        running_gateway(
            engine,
            port=edge.gateway_port,
            GATEWAY_EDGE_URL=edge.url + edge.settings.get("NGINX_BASE_PATH", ""),
            **settings,
        ) as gateway,
    ):
        yield gateway


async def test_right_settings_agree_and_are_not_asked_again(
    edge: Edge, findings: Findings, caplog: pytest.LogCaptureFixture
) -> None:
    edge.start()
    async with gateway_behind(edge) as gateway:
        await eventually(findings)
        assert findings() == [("INFO", "edge_agrees")]
        assert fields(caplog) == {"edge": edge.url, "address": ASKED_FROM}
        assert await gateway.metric(METRIC) == 0
        assert (await gateway.report())["notes"] == []
        task = gateway.parts.agreement._task
        assert task
        await task
    assert len([entry for entry in edge.log() if entry["client"] == ASKED_FROM]) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"NGINX_TLS": "self-signed"},
        {"NGINX_TLS": "self-signed", "NGINX_BASE_PATH": "/ernie", "NGINX_SERVER_NAMES": "chat.example.org"},
        # The gateway's own address is a trusted proxy's as well.
        {"NGINX_TRUSTED_PROXIES": "127.0.0.0/8"},
    ],
    ids=["TLS", "TLS, path and names", "a proxy in front"],
)
async def test_they_agree_whatever_the_front_is_like(
    tmp_path: Path, findings: Findings, settings: dict[str, str]
) -> None:
    edge = Edge(tmp_path / "other", **settings)
    edge.start()
    async with gateway_behind(edge):
        await eventually(findings)
        assert findings() == [("INFO", "edge_agrees")]
    assert edge.stop() == 0


async def test_nginx_missing_among_the_trusted_is_told_loudly_and_stops_nothing(
    edge: Edge, findings: Findings, caplog: pytest.LogCaptureFixture
) -> None:
    edge.start()
    async with gateway_behind(edge, GATEWAY_TRUSTED_PROXIES="10.0.0.0/8") as gateway:
        await eventually(findings)
        assert findings() == [("WARNING", "edge_disagrees")]
        said = fields(caplog)
        assert (said["address"], said["counted_as"]) == (ASKED_FROM, "127.0.0.1")
        assert "add 127.0.0.1, if that is nginx, to GATEWAY_TRUSTED_PROXIES" in said["cure"]
        assert await gateway.metric(METRIC) == 1
        report = await gateway.client.get("/readyz?verbose")
        assert report.status_code == 200
        [note] = report.json()["notes"]
        assert "edge_disagrees" in note
        assert "127.0.0.1" not in note
        assert (await gateway.chat()).status_code == 200
        # Asked again it is found again, and not said again.
        await eventually(lambda: len([entry for entry in edge.log() if entry["client"] == ASKED_FROM]) == 2)
    assert len(findings()) == 1


async def test_a_proxy_that_passes_claims_on_is_told_loudly(
    edge: Edge, findings: Findings, caplog: pytest.LogCaptureFixture
) -> None:
    edge.shorten("snippets/proxy_headers.conf", "proxy_set_header X-Forwarded-For", "$proxy_add_x_forwarded_for")
    edge.start()
    async with gateway_behind(edge) as gateway:
        await eventually(findings)
        assert findings() == [("WARNING", "edge_disagrees")]
        assert fields(caplog)["counted_as"] == "192.0.2.1"
        assert "Anybody can pass for anybody" in fields(caplog)["cure"]
        assert await gateway.metric(METRIC) == 1


async def test_without_nginx_the_gateway_serves_and_asks_again(edge: Edge, findings: Findings) -> None:
    async with gateway_behind(edge) as gateway:
        await eventually(findings)
        assert findings() == [("INFO", "edge_unreached")]
        assert (await gateway.chat()).status_code == 200
        assert await gateway.metric(METRIC) == 0
        edge.start()
        await eventually(lambda: findings() == [("INFO", "edge_unreached"), ("INFO", "edge_agrees")], 10)


async def test_a_silent_nginx_holds_up_neither_start_nor_stop(edge: Edge) -> None:
    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()
        writer.close()

    asked, over = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_server(say_nothing, "127.0.0.1", edge.port):
        started = time.monotonic()
        async with gateway_behind(edge) as gateway:
            assert (await gateway.chat()).status_code == 200
            await asked.wait()
        assert time.monotonic() - started < 3
        over.set()


async def test_something_else_at_the_address_is_no_agreement(
    edge: Edge, findings: Findings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(Backend("another"), edge.port), gateway_behind(edge):
        await eventually(findings)
        assert findings() == [("INFO", "edge_unreached")]
        assert "did not ask this gateway" in fields(caplog)["reason"]


async def test_keys_are_no_obstacle(edge: Edge, findings: Findings, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"key alice default sha256:{hashlib.sha256(b'secret').hexdigest()}\n")
    edge.start()
    async with gateway_behind(edge, GATEWAY_API_KEYS_FILE=str(keys)):
        await eventually(findings)
        assert findings() == [("INFO", "edge_agrees")]


async def test_a_strangers_guess_changes_nothing(edge: Edge, findings: Findings) -> None:
    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    def without_times(answer: httpx.Response) -> tuple[int, bytes, set[str]]:
        return answer.status_code, answer.content, set(answer.headers)

    asked, over = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_server(hold, "127.0.0.1", edge.port), gateway_behind(edge) as gateway:
        await asked.wait()
        plain = await gateway.client.get("/v1/models")
        for guess in ("", "0" * 64, "x" * 10_000):
            answer = await gateway.client.get("/v1/models", headers={"X-Agreement-Check": guess})
            assert without_times(answer) == without_times(plain)
        over.set()
        await eventually(findings)
    assert findings() == [("INFO", "edge_unreached")]


async def test_where_no_nginx_is_named_nobody_is_asked(findings: Findings) -> None:
    async with FakeEngine() as engine, running_gateway(engine, GATEWAY_EDGE_URL="off") as gateway:
        assert (await gateway.chat()).status_code == 200
        assert gateway.parts.agreement._task is None
    assert findings() == []
