"""No connection to the engine: an honest 503, or another engine's answer."""

import asyncio
import socket
import time

import pytest
from gateway.errors import UpstreamUnavailable
from gateway.upstreams import Engine, EngineClient

from tests.fakes.engine import Call, FakeEngine, answer
from tests.fakes.gateway import (
    COMPLETIONS,
    PROMPT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    check_retry_after,
    error_of,
    eventually,
    running_gateway,
)


async def test_no_engine_yet_is_503_with_retry_after() -> None:
    engine = FakeEngine()
    await engine.start()
    await engine.stop()
    async with running_gateway(engine, wait=False) as gateway:
        response = await gateway.chat()
        assert response.status_code == 503
        assert error_of(response)["code"] == "not_ready"
        check_retry_after(response)
        assert await gateway.state() == "unreachable"
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="not_ready") == 1


async def test_engine_that_has_just_died_is_503_and_found_out_at_once(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_PROBE_INTERVAL_SECONDS="60") as gateway:
        await engine.stop()
        response = await gateway.chat()
        assert response.status_code == 503
        assert error_of(response)["code"] == "not_ready"
        check_retry_after(response)
        await gateway.becomes("unreachable", timeout_seconds=2)
        assert (await gateway.client.get("/readyz")).status_code == 503


@pytest.mark.parametrize("stream", [True, False])
async def test_another_engine_answers_when_one_cannot_be_reached(engine: FakeEngine, *, stream: bool) -> None:
    async with FakeEngine() as other, running_gateway(engine, other, GATEWAY_PROBE_INTERVAL_SECONDS="60") as gateway:
        await other.stop()
        for _ in range(4):
            response = await gateway.client.post(COMPLETIONS, json={**PROMPT, "stream": stream})
            assert response.status_code == 200
        assert len(engine.calls) == 4
        await assert_quiescent(gateway, engine)


async def test_engine_that_breaks_is_not_asked_twice_nor_another(engine: FakeEngine) -> None:
    async def die(call: Call) -> None:
        call.fin()

    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        engine.script = other.script = die
        response = await gateway.chat()
        assert response.status_code == 502
        assert error_of(response)["code"] == "upstream_broken"
        assert len(engine.calls) + len(other.calls) == 1
        await assert_quiescent(gateway, engine, other)


async def test_unanswered_connect_gives_up_in_time() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        # A full backlog drops further handshakes without a word.
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        client = EngineClient(connect_timeout_seconds=0.2)
        try:
            started_at = time.monotonic()
            with pytest.raises(UpstreamUnavailable):
                await client.post(Engine("deaf", f"http://127.0.0.1:{port}"), "/v1/completions", b"{}", {})
            assert time.monotonic() - started_at < 2
            assert client.open_connections == 0
        finally:
            client.close()
            for filler in fillers:
                filler.close()


async def test_connection_that_the_engine_closes_while_idle_costs_nothing(
    engine: FakeEngine, gateway: RunningGateway
) -> None:
    async def answer_and_close(call: Call) -> None:
        await answer(call)
        call.fin()

    engine.script = answer_and_close
    for _ in range(30):
        assert (await gateway.chat()).status_code == 200
    await assert_quiescent(gateway, engine)


async def test_engine_that_returns_is_proved_again(engine: FakeEngine, gateway: RunningGateway) -> None:
    trials = len(engine.trials)
    await engine.stop()
    await gateway.becomes("unreachable")
    await engine.start()
    await gateway.becomes("ready")
    assert len(engine.trials) > trials
    await assert_quiescent(gateway, engine)


async def test_proxies_of_the_environment_are_not_used(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with running_gateway(engine) as gateway:
        await assert_quiescent(gateway, engine)


async def test_cancelled_connects_leave_nothing(engine: FakeEngine, gateway: RunningGateway) -> None:
    for _ in range(20):
        client = await gateway.raw(STREAMED)
        client.reset()
    await asyncio.sleep(0)
    await eventually(lambda: not len(gateway.parts.in_flight))
    await assert_quiescent(gateway, engine)
