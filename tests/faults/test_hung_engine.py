"""Down is not busy: an engine with work that stands still is taken out and comes back; a full one is left alone."""

import asyncio

import pytest

from tests.fakes.engine import Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    COMPLETIONS,
    PROMPT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    error_of,
    eventually,
    running_gateway,
)

STALL = {"GATEWAY_STALL_SECONDS": "0.4"}


async def test_hung_engine_is_taken_out_and_comes_back(engine: FakeEngine) -> None:
    async with running_gateway(engine, **STALL) as gateway:
        engine.script = engine.trial_script = hold
        caught = await gateway.raw(STREAMED)
        await gateway.becomes("stalled")
        readyz = await gateway.client.get("/readyz")
        assert readyz.status_code == 503
        assert "stalled" in error_of(readyz)["message"]
        assert readyz.headers["retry-after"]
        assert (await gateway.chat()).status_code == 503
        engine.trial_script = answer
        await gateway.becomes("ready")
        caught.close()
        await assert_quiescent(gateway, engine)


async def test_hung_engine_leaves_the_work_to_the_other(engine: FakeEngine) -> None:
    async with FakeEngine() as other, running_gateway(engine, other, **STALL) as gateway:
        engine.script = engine.trial_script = hold
        caught = [await gateway.raw(PROMPT, COMPLETIONS) for _ in range(2)]
        await gateway.becomes("stalled")
        assert (await gateway.client.get("/readyz")).status_code == 200
        for _ in range(3):
            assert (await gateway.chat()).status_code == 200
        for client in caught:
            client.close()
        engine.trial_script = answer
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine, other)


async def test_hung_with_health_unanswered_too(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.readiness.watch.LOOK_SECONDS", 0.1)
    async with running_gateway(engine, **STALL) as gateway:
        engine.trial_script = hold
        engine.health_delay_seconds = 60
        await gateway.becomes("stalled")
        engine.trial_script = answer
        engine.health_delay_seconds = 0
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_full_engine_whose_counters_move_keeps_its_traffic(engine: FakeEngine) -> None:
    async with running_gateway(engine, **STALL) as gateway:
        engine.script = engine.trial_script = hold
        engine.waiting = 40
        trials = len(engine.trials)
        client = await gateway.raw(STREAMED)
        # They move at every look, however long the machine takes from one to the next.
        engine.tokens_per_look = 1
        enough = engine.generated_tokens + 20
        while engine.generated_tokens < enough:
            assert gateway.parts.upstreams.engines[0].takes_requests
            await asyncio.sleep(0.02)
        assert await gateway.state() == "busy"
        assert (await gateway.client.get("/readyz")).status_code == 200
        assert len(engine.trials) == trials, "a busy engine is not probed"
        client.close()
        engine.waiting = 0
        await assert_quiescent(gateway, engine)


async def test_engine_without_metrics_is_judged_by_what_it_sends(engine: FakeEngine) -> None:
    async def slow(call: Call) -> None:
        for _ in range(20):
            call.chunk(b": working\n\n")
            await asyncio.sleep(0.05)
        call.fin()

    async with running_gateway(engine, **STALL) as gateway:
        engine.fixed_running = 0
        engine.trial_script = hold
        engine.script = after_events(1, slow)
        stream = asyncio.create_task(gateway.chat(STREAMED))
        while not stream.done():
            assert gateway.parts.upstreams.engines[0].takes_requests
            await asyncio.sleep(0.02)
        engine.trial_script = answer
        await assert_quiescent(gateway, engine)


async def test_idle_engine_is_not_probed(engine: FakeEngine, gateway: RunningGateway) -> None:
    trials = len(engine.trials)
    await asyncio.sleep(0.4)
    assert len(engine.trials) == trials
    assert await gateway.state() == "ready"


async def test_slow_health_of_an_idle_engine_is_no_fault(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.readiness.watch.LOOK_SECONDS", 0.1)
    async with running_gateway(engine, **STALL) as gateway:
        engine.health_delay_seconds = 60
        for _ in range(20):
            assert gateway.parts.upstreams.engines[0].takes_requests
            await asyncio.sleep(0.04)
        await assert_quiescent(gateway, engine)


async def test_engine_that_says_it_is_dead_is_out_at_once(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.health_status = 503
    await gateway.becomes("loading")
    assert (await gateway.chat()).status_code == 503
    engine.health_status = 200
    await gateway.becomes("ready")
    await assert_quiescent(gateway, engine)


async def test_restarted_engine_is_proved_again(engine: FakeEngine, gateway: RunningGateway) -> None:
    trials = len(engine.trials)
    engine.started_at += 1
    await eventually(lambda: len(engine.trials) > trials)
    await gateway.becomes("ready")
    await assert_quiescent(gateway, engine)
