"""Stopping in order: readiness falls, open answers get the grace, the rest one error event, exit code 0."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import CHAT, STREAMED, error_of, events_in, eventually, last_error, running_gateway

OPEN = [STREAMED, CHAT]


async def test_readiness_falls_first_and_open_streams_finish(engine: FakeEngine) -> None:
    goes_on = asyncio.Event()

    async def rest(call: Call) -> None:
        await goes_on.wait()
        for part in [*EVENTS[2:], DONE]:
            call.chunk(part)
        call.end()

    engine.script = after_events(2, rest)
    async with running_gateway(engine) as gateway:
        streaming = asyncio.create_task(gateway.chat(STREAMED))
        await engine.next_call()
        gateway.server.handle_exit(signal.SIGTERM, None)
        await eventually(lambda: gateway.parts.upstreams.closing)
        readyz = await gateway.client.get("/readyz")
        assert readyz.status_code == 503
        assert error_of(readyz)["code"] == "shutting_down"
        assert (await gateway.client.get("/livez")).status_code == 200
        assert await gateway.metric("gateway_ready") == 0
        refused = await gateway.chat()
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "shutting_down"
        assert refused.headers["retry-after"]
        goes_on.set()
        response = await streaming
        assert events_in(response.content) == [*EVENTS, DONE]
        assert gateway.task is not None
        await asyncio.wait_for(gateway.task, 5)


async def test_what_outlasts_the_grace_gets_an_error(engine: FakeEngine) -> None:
    async def script(call: Call) -> None:
        await (after_events(2, hold)(call) if call.json.get("stream") else hold(call))

    engine.script = script
    async with running_gateway(engine, GATEWAY_DRAIN_SECONDS="0.2") as gateway:
        streaming, whole = [asyncio.create_task(gateway.chat(body)) for body in OPEN]
        await engine.next_call(2)
        gateway.server.handle_exit(signal.SIGTERM, None)
        response = await streaming
        assert events_in(response.content)[:-1] == EVENTS[:2]
        assert last_error(response.content)["code"] == "shutting_down"
        cut = await whole
        assert cut.status_code == 503
        assert error_of(cut)["code"] == "shutting_down"
        for call in engine.calls:
            await asyncio.wait_for(call.disconnected.wait(), 1)
        assert gateway.task is not None
        await asyncio.wait_for(gateway.task, 5)


async def process(engine: FakeEngine, port: int, **settings: str) -> asyncio.subprocess.Process:
    """Start the gateway as it is started anywhere, and wait until it is ready."""
    environment = {"GATEWAY_UPSTREAMS": engine.url, "GATEWAY_PORT": str(port), **settings}
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", env=environment, stdout=asyncio.subprocess.PIPE, cwd=Path("/")
    )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        for _ in range(1000):
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return started
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
    raise AssertionError("the gateway did not become ready")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_process_exits_with_0_and_ends_its_streams(
    engine: FakeEngine, unused_tcp_port: int, sent: signal.Signals
) -> None:
    started = await process(engine, unused_tcp_port, GATEWAY_DRAIN_SECONDS="0.3")
    engine.script = after_events(2, hold)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}", trust_env=False) as client:
        streaming = asyncio.create_task(client.post("/v1/chat/completions", json=STREAMED))
        await engine.next_call()
        stopped_at = time.monotonic()
        started.send_signal(sent)
        response = await streaming
        assert last_error(response.content)["code"] == "shutting_down"
    output, _ = await asyncio.wait_for(started.communicate(), 10)
    assert started.returncode == 0
    assert time.monotonic() - stopped_at < 6
    assert b'"message":"stopped"' in output
    assert b"Traceback" not in output
    assert b'"level":"error"' not in output


async def test_process_without_work_stops_at_once(engine: FakeEngine, unused_tcp_port: int) -> None:
    started = await process(engine, unused_tcp_port)
    engine.script = answer
    stopped_at = time.monotonic()
    started.send_signal(signal.SIGTERM)
    await asyncio.wait_for(started.communicate(), 10)
    assert started.returncode == 0
    assert time.monotonic() - stopped_at < 4
