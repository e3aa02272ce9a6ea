"""A client that leaves frees the engine within a second, whenever it leaves."""

import asyncio
import time

import pytest

from tests.fakes.engine import Call, FakeEngine, after_events, hold
from tests.fakes.gateway import CHAT, STREAMED, RawClient, RunningGateway, assert_quiescent, eventually, running_gateway
from tests.fakes.scripts import flood

WAYS_TO_LEAVE = {"fin": RawClient.close, "reset": RawClient.reset}


async def leave_and_look(gateway: RunningGateway, engine: FakeEngine, client: RawClient, leave: object) -> None:
    call = await engine.next_call()
    left_at = time.monotonic()
    leave(client)  # type: ignore[operator]
    await asyncio.wait_for(call.disconnected.wait(), 1)
    assert time.monotonic() - left_at < 1
    await eventually(lambda: not len(gateway.parts.in_flight))
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected") == 1
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="ok") == 0


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE.keys())
@pytest.mark.parametrize("body", [STREAMED, CHAT], ids=["streamed", "whole"])
async def test_leaving_before_the_engine_answers_aborts(
    engine: FakeEngine, gateway: RunningGateway, body: object, leave: object
) -> None:
    engine.script = hold
    await leave_and_look(gateway, engine, await gateway.raw(body), leave)
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE.keys())
async def test_leaving_during_prefill_aborts(engine: FakeEngine, gateway: RunningGateway, leave: object) -> None:
    engine.script = after_events(0, hold)
    await leave_and_look(gateway, engine, await gateway.raw(STREAMED), leave)
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE.keys())
async def test_leaving_mid_stream_aborts(engine: FakeEngine, gateway: RunningGateway, leave: object) -> None:
    engine.script = after_events(3, hold)
    client = await gateway.raw(STREAMED)
    await client.head()
    await client.reader.readuntil(b"\n\n")
    await leave_and_look(gateway, engine, client, leave)
    await assert_quiescent(gateway, engine)


async def test_leaving_in_the_middle_of_a_whole_answer_aborts(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def half(call: Call) -> None:
        call.head(headers={"content-type": "application/json"})
        call.chunk(b'{"id":')
        await hold(call)

    engine.script = half
    await leave_and_look(gateway, engine, await gateway.raw(CHAT), RawClient.close)
    await assert_quiescent(gateway, engine)


async def test_aborts_are_confirmed_by_the_engines_own_counters(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = hold
    client = await gateway.raw(STREAMED)
    await engine.next_call()
    client.close()
    await eventually(lambda: gateway.parts.upstreams.engines[0].unsettled_aborts == [] and engine.running == 0)
    await eventually(lambda: not len(gateway.parts.in_flight))
    for _ in range(100):
        if await gateway.metric("gateway_aborts_total", confirmed="yes"):
            break
        await asyncio.sleep(0.02)
    assert await gateway.metric("gateway_aborts_total", confirmed="yes") == 1
    assert await gateway.metric("gateway_aborts_total", confirmed="no") == 0
    await assert_quiescent(gateway, engine)


async def test_engine_that_goes_on_working_is_not_confirmed(
    engine: FakeEngine, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.readiness.aborts.CONFIRM_SECONDS", 0.2)
    engine.script = hold
    engine.fixed_running = 5
    client = await gateway.raw(STREAMED)
    await engine.next_call()
    client.close()
    engine.generated_tokens += 1
    known = gateway.parts.upstreams.engines[0]
    await eventually(lambda: known.unsettled_aborts)
    await eventually(lambda: not known.unsettled_aborts)
    assert await gateway.metric("gateway_aborts_total", confirmed="no") == 1
    await assert_quiescent(gateway, engine)


async def test_gauges_that_stand_still_confirm_nothing(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hung engine: requests that came after it froze are in no gauge, and must not make up for the one that left."""
    monkeypatch.setattr("gateway.readiness.aborts.CONFIRM_SECONDS", 0.6)
    async with running_gateway(engine, GATEWAY_STALL_SECONDS="30") as gateway:
        engine.script = hold
        engine.fixed_running = 1
        left, *others = [await gateway.raw(STREAMED) for _ in range(3)]
        await engine.next_call(3)
        left.close()
        known = gateway.parts.upstreams.engines[0]
        await eventually(lambda: known.unsettled_aborts)
        await eventually(lambda: not known.unsettled_aborts)
        assert await gateway.metric("gateway_aborts_total", confirmed="yes") == 0
        assert await gateway.metric("gateway_aborts_total", confirmed="no") == 1
        for client in others:
            client.close()
        engine.fixed_running = None
        await assert_quiescent(gateway, engine)


async def test_gauges_that_move_confirm_beside_other_work(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = hold
    engine.tokens_per_look = 1
    left, other = [await gateway.raw(STREAMED) for _ in range(2)]
    await engine.next_call(2)
    left.close()
    known = gateway.parts.upstreams.engines[0]
    await eventually(lambda: known.unsettled_aborts)
    await eventually(lambda: not known.unsettled_aborts)
    assert await gateway.metric("gateway_aborts_total", confirmed="yes") == 1
    other.close()
    await assert_quiescent(gateway, engine)


async def test_client_that_takes_nothing_is_let_go(engine: FakeEngine) -> None:
    engine.script = flood
    async with running_gateway(engine, GATEWAY_IDLE_TIMEOUT_SECONDS="0.4") as gateway:
        client = await gateway.raw(STREAMED)
        call = await engine.next_call()
        await asyncio.wait_for(call.disconnected.wait(), 5)
        await eventually(lambda: not len(gateway.parts.in_flight))
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected") == 1
        client.reset()
        await assert_quiescent(gateway, engine)
