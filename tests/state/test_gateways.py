"""Two whole gateways with one Valkey, seen by their clients: one limit, and nobody notices when Valkey goes away."""

import asyncio
from collections import Counter

import pytest

from tests.fakes.engine import FakeEngine, hold
from tests.fakes.gateway import STREAMED, RunningGateway, assert_quiescent, eventually, running_gateway
from tests.state.server import Server

LIMITS = {"GATEWAY_RATE_LIMIT_REQUESTS": "20/minute", "GATEWAY_RATE_LIMIT_TOKENS": "100000/minute"}


async def flood(gateways: list[RunningGateway], number: int, address: str) -> Counter[int]:
    headers = {"x-forwarded-for": address}
    answers = await asyncio.gather(*(gateway.chat(headers=headers) for gateway in gateways for _ in range(number)))
    return Counter(answer.status_code for answer in answers)


async def test_the_limit_is_one_over_both_and_outlives_a_restart_of_one(engine: FakeEngine, valkey: Server) -> None:
    shared = {"GATEWAY_STATE_URL": valkey.url, **LIMITS}
    async with running_gateway(engine, **shared) as one:
        async with running_gateway(engine, **shared) as other:
            assert await flood([one, other], 25, "203.0.113.1") == {200: 20, 429: 30}
            assert await flood([one, other], 5, "203.0.113.2") == {200: 10}
            assert await one.metric("gateway_state_degraded") == 0
        async with running_gateway(engine, **shared) as anew:
            assert await flood([anew], 25, "203.0.113.1") == {429: 25}
            assert await flood([anew], 25, "203.0.113.2") == {200: 10, 429: 15}


async def test_streams_are_counted_over_both_and_freed_when_clients_leave(engine: FakeEngine, valkey: Server) -> None:
    shared = {"GATEWAY_STATE_URL": valkey.url, "GATEWAY_MAX_STREAMS_PER_CLIENT": "2"}
    async with running_gateway(engine, **shared) as one, running_gateway(engine, **shared) as other:
        engine.script = hold
        clients = [await gateway.raw(STREAMED) for gateway in (one, other)]
        await engine.next_call(2)
        assert (await one.chat()).status_code == 429
        assert (await other.chat()).status_code == 429
        for client in clients:
            client.close()
        for gateway in (one, other):
            await eventually(lambda gateway=gateway: not len(gateway.parts.in_flight))
        await assert_quiescent(one, engine)
        await assert_quiescent(other, engine)


async def test_valkey_dies_under_load_and_comes_back(
    engine: FakeEngine, own_valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.limits.valkey.SIGN_SECONDS", 0.1)
    shared = {"GATEWAY_STATE_URL": own_valkey.url, **LIMITS}
    async with running_gateway(engine, **shared) as one, running_gateway(engine, **shared) as other:
        gateways = [one, other]
        await eventually(lambda: all(gateway.parts.shared._gateways == 2 for gateway in gateways))
        loads = [asyncio.create_task(flood(gateways, 1, f"198.51.100.{number}")) for number in range(20)]
        own_valkey.stop()
        assert sum((await asyncio.gather(*loads)), Counter()) == {200: 40}
        assert await flood(gateways, 25, "203.0.113.1") == {200: 20, 429: 30}
        assert [await gateway.metric("gateway_state_degraded") for gateway in gateways] == [1, 1]
        own_valkey.start()
        await eventually(lambda: not any(gateway.parts.shared.degraded for gateway in gateways))
        assert [await gateway.metric("gateway_state_degraded") for gateway in gateways] == [0, 0]
        assert await flood(gateways, 25, "203.0.113.3") == {200: 20, 429: 30}
        await assert_quiescent(one, engine)
