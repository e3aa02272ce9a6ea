"""Engines of different models behind one gateway: a request goes where its model is served."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.engine import MODEL, FakeEngine, hold
from tests.fakes.gateway import CHAT, RunningGateway, check_retry_after, error_of, eventually, running_gateway

SECOND = "second"


@pytest.fixture
async def other() -> AsyncIterator[FakeEngine]:
    """An engine that serves another model."""
    async with FakeEngine() as other:
        other.models = [{"id": SECOND, "object": "model", "max_model_len": 2048}]
        yield other


def asking_for(model: str) -> dict[str, Any]:
    return {**CHAT, "model": model}


async def test_a_request_goes_to_an_engine_that_serves_its_model(engine: FakeEngine, other: FakeEngine) -> None:
    async with running_gateway(engine, other) as gateway:
        for _ in range(4):
            assert (await gateway.chat(asking_for(SECOND))).status_code == 200
        for _ in range(4):
            assert (
                await gateway.client.post("/v1/completions", json={"prompt": "x", "model": MODEL})
            ).status_code == 200
        body = {"model": SECOND, "messages": CHAT["messages"]}
        assert (await gateway.client.post("/tokenize", json=body)).json()["count"] == 7
    assert [call.json["model"] for call in other.calls] == [SECOND] * 5
    assert [call.json["model"] for call in engine.calls] == [MODEL] * 4


@pytest.mark.parametrize("named", [{}, {"model": "nobody's"}], ids=["no name", "unknown"])
async def test_without_a_known_name_any_engine_takes_it(
    engine: FakeEngine, other: FakeEngine, named: dict[str, str]
) -> None:
    async with running_gateway(engine, other) as gateway:
        for number in range(16):
            body = {"messages": [{"role": "user", "content": str(number)}], **named}
            assert (await gateway.chat(body)).status_code == 200
    assert len(engine.calls) + len(other.calls) == 16
    assert engine.calls
    assert other.calls


async def test_a_full_engine_keeps_nobody_from_the_other(engine: FakeEngine, other: FakeEngine) -> None:
    engine.script = hold
    # By its own figures it runs one request, and another waits in it.
    engine.fixed_running, engine.waiting = 1, 1
    async with running_gateway(engine, other, GATEWAY_MAX_IN_FLIGHT="", GATEWAY_QUEUE_SIZE="8") as gateway:
        waiting = await fill(gateway, engine)
        assert (await gateway.chat(asking_for(SECOND))).status_code == 200
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def fill(gateway: RunningGateway, engine: FakeEngine) -> list[asyncio.Task[Any]]:
    """Ask until a request waits."""
    tasks: list[asyncio.Task[Any]] = []
    while not len(gateway.parts.admission):
        tasks.append(asyncio.create_task(gateway.chat(asking_for(MODEL))))
        seen = len(engine.calls)
        await eventually(lambda seen=seen: len(engine.calls) > seen or len(gateway.parts.admission))
    return tasks


async def test_a_model_whose_engine_is_away_is_waited_for(engine: FakeEngine, other: FakeEngine) -> None:
    async with running_gateway(engine, other, GATEWAY_QUEUE_SIZE="8") as gateway:
        away = gateway.parts.upstreams.engines[1]
        await other.stop()
        await eventually(lambda: not away.takes_requests)
        task = asyncio.create_task(gateway.chat(asking_for(SECOND)))
        await eventually(lambda: len(gateway.parts.admission))
        assert (await gateway.chat(asking_for(MODEL))).status_code == 200
        await other.start()
        assert (await task).status_code == 200
    assert not [call for call in engine.calls if call.json["model"] == SECOND]


async def test_a_model_whose_engine_stays_away_is_refused_as_not_ready(engine: FakeEngine, other: FakeEngine) -> None:
    async with running_gateway(engine, other) as gateway:
        away = gateway.parts.upstreams.engines[1]
        await other.stop()
        await eventually(lambda: not away.takes_requests)
        refusal = await gateway.chat(asking_for(SECOND))
        assert refusal.status_code == 503
        assert error_of(refusal)["code"] == "not_ready"
        check_retry_after(refusal)
        assert (await gateway.chat(asking_for(MODEL))).status_code == 200
