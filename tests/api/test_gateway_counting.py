"""`POST /tokenize`: the engine's count and nothing else, cheap, limited, and never a wait."""

import asyncio
import json
from typing import Any

import pytest
from gateway.routes import counting

from tests.fakes.engine import Call, FakeEngine
from tests.fakes.gateway import CHAT, RunningGateway, assert_quiescent, check_retry_after, error_of, running_gateway

BODY = {"model": "ernie-demo", "messages": CHAT["messages"]}


async def test_count_is_the_engines_and_no_token_is_shown(engine: FakeEngine, gateway: RunningGateway) -> None:
    response = await gateway.client.post("/tokenize", json=BODY, headers={"x-request-id": "mine"})
    assert response.json() == {"count": 7, "max_model_len": 2048}
    assert response.headers["x-request-id"] == "mine"
    call = engine.calls[0]
    assert (call.path, call.json) == ("/tokenize", BODY)
    assert call.header("x-request-id") != "mine"


@pytest.mark.parametrize(
    "field",
    [
        {"prompt": "x"},
        {"add_special_tokens": True},
        {"return_token_strs": True},
        {"chat_template": "{{ 1 }}"},
        {"chat_template_kwargs": {}},
        {"tools": [{}]},
        {"continue_final_message": True},
        {"mm_processor_kwargs": {}},
        {"stream": True},
        {"max_tokens": 1},
    ],
)
async def test_every_other_field_is_refused_by_name(
    engine: FakeEngine, gateway: RunningGateway, field: dict[str, Any]
) -> None:
    response = await gateway.client.post("/tokenize", json={**BODY, **field})
    assert response.status_code == 400
    assert error_of(response)["param"] in field
    assert engine.calls == []


async def test_text_alone_is_not_counted(gateway: RunningGateway) -> None:
    for body in ({}, {"messages": []}, {"messages": [{"role": "tool", "content": "x"}]}):
        assert (await gateway.client.post("/tokenize", json=body)).status_code == 400


async def test_it_counts_as_a_request_and_costs_no_tokens(engine: FakeEngine) -> None:
    limits = {"GATEWAY_RATE_LIMIT_REQUESTS": "2/minute", "GATEWAY_RATE_LIMIT_TOKENS": "9000/minute"}
    async with running_gateway(engine, **limits) as gateway:
        for left in ("1", "0"):
            response = await gateway.client.post("/tokenize", json=BODY)
            assert response.headers["x-ratelimit-remaining-requests"] == left
        refused = await gateway.client.post("/tokenize", json=BODY)
        assert refused.status_code == 429
        check_retry_after(refused)
        assert refused.headers["x-ratelimit-remaining-tokens"] == "9000"
        assert len(engine.calls) == 2


async def test_it_never_waits_for_an_engine(engine: FakeEngine) -> None:
    engine.health_status = 503
    async with running_gateway(engine, wait=False, GATEWAY_QUEUE_SIZE="16") as gateway:
        response = await asyncio.wait_for(gateway.client.post("/tokenize", json=BODY), 2)
    assert (response.status_code, error_of(response)["code"]) == (503, "not_ready")
    check_retry_after(response)


async def test_engine_that_went_away_is_not_ready(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_PROBE_INTERVAL_SECONDS="60") as gateway:
        await engine.stop()
        response = await gateway.client.post("/tokenize", json=BODY)
    assert (response.status_code, error_of(response)["code"]) == (503, "not_ready")


@pytest.mark.parametrize(
    ("status", "body", "seen"),
    [
        (404, b'{"error":{"message":"no such model","type":"NotFoundError","param":null,"code":404}}', 404),
        (404, b'{"detail":"Not Found"}', 404),
        (500, b"Traceback", 502),
        (200, b"Traceback", 502),
        (200, b"[]", 502),
        (200, b'{"count":"7","max_model_len":2048}', 502),
        (200, b'{"tokens":[1]}', 502),
    ],
)
async def test_an_engine_that_does_not_count_is_named(
    engine: FakeEngine, gateway: RunningGateway, status: int, body: bytes, seen: int
) -> None:
    async def answer(call: Call) -> None:
        call.whole(status, body)

    engine.count_script = answer
    response = await gateway.client.post("/tokenize", json=BODY)
    assert response.status_code == seen
    assert error_of(response)
    await assert_quiescent(gateway, engine)


async def test_silent_engine_is_not_waited_for(
    engine: FakeEngine, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def be_silent(call: Call) -> None:
        await call.disconnected.wait()

    engine.count_script = be_silent
    monkeypatch.setattr(counting, "COUNT_SECONDS", 0.1)
    response = await gateway.client.post("/tokenize", json=BODY)
    assert (response.status_code, error_of(response)["code"]) == (504, "upstream_timeout")
    await assert_quiescent(gateway, engine)


async def test_large_conversation_is_counted(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def answer(call: Call) -> None:
        tokens = list(range(131_072))
        call.whole(200, json.dumps({"count": len(tokens), "max_model_len": 131_072, "tokens": tokens}).encode())

    engine.count_script = answer
    messages = [{"role": "user", "content": "好" * 300_000}]
    response = await gateway.client.post("/tokenize", json={"messages": messages})
    assert response.json() == {"count": 131_072, "max_model_len": 131_072}
