"""Ready means that sound text came back: until then 503, and the fault has a name."""

import json

import pytest

from tests.fakes.engine import Call, FakeEngine, Script, answer, hold
from tests.fakes.gateway import assert_quiescent, check_retry_after, error_of, eventually, first_token, running_gateway
from tests.fakes.lab.modes import UNSOUND


@pytest.mark.parametrize(
    ("fault", "script"), [(words, script) for words, (_, _, script) in UNSOUND.items()], ids=UNSOUND.keys()
)
async def test_unsound_text_is_not_ready_and_named(engine: FakeEngine, fault: str, script: Script) -> None:
    engine.trial_script = script
    async with running_gateway(engine, wait=False) as gateway:
        await eventually(lambda: fault in (gateway.parts.upstreams.engines[0].waits_for or ""))
        report = await gateway.report()
        assert report["ready"] is False
        assert report["engines"][0]["state"] == "warming"
        assert (await gateway.chat()).status_code == 503
        assert await gateway.metric("gateway_ready") == 0
        engine.trial_script = answer
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_models_listed_is_not_ready(engine: FakeEngine) -> None:
    async def refuse(call: Call) -> None:
        call.whole(503, json.dumps({"error": {"message": "loading", "type": "x", "code": 503}}).encode())

    engine.trial_script = refuse
    async with running_gateway(engine, wait=False) as gateway:
        await eventually(lambda: "status 503" in (gateway.parts.upstreams.engines[0].waits_for or ""))
        readyz = await gateway.client.get("/readyz")
        assert readyz.status_code == 503
        check_retry_after(readyz)
        assert error_of(readyz)["code"] == "not_ready"
        engine.trial_script = answer
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_generation_that_never_comes_is_not_ready(engine: FakeEngine) -> None:
    engine.trial_script = hold
    async with running_gateway(engine, wait=False, **first_token(0.2)) as gateway:
        await eventually(lambda: "within 0.2 s" in (gateway.parts.upstreams.engines[0].waits_for or ""))
        engine.trial_script = answer
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_no_model_is_loading(engine: FakeEngine) -> None:
    models, engine.models = engine.models, []
    async with running_gateway(engine, wait=False) as gateway:
        await gateway.becomes("loading")
        engine.models = models
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_warmup_can_be_left_out(engine: FakeEngine) -> None:
    engine.trial_script = hold
    async with running_gateway(engine, GATEWAY_WARMUP="off") as gateway:
        assert engine.trials == []
        await assert_quiescent(gateway, engine)


async def test_warmup_covers_several_lengths_and_is_published(engine: FakeEngine) -> None:
    async with running_gateway(engine) as gateway:
        tokens = [call.json["max_tokens"] for call in engine.trials]
        assert {1, 8, 16, 32} <= set(tokens)
        assert len({len(call.body) for call in engine.trials}) > 3
        assert all(call.json["stream"] and call.json["temperature"] == 0 for call in engine.trials)
        label = f"127.0.0.1:{engine.port}"
        assert 0 < await gateway.metric("gateway_warmup_ttft_seconds", engine=label) < 5
        assert await gateway.metric("gateway_engine_state", engine=label, state="ready") == 1
        assert await gateway.metric("gateway_engine_state", engine=label, state="warming") == 0


async def test_refused_longer_prompts_are_no_fault(engine: FakeEngine) -> None:
    async def short_only(call: Call) -> None:
        if len(call.body) > 250:
            call.whole(400, b'{"error":{"message":"too long","type":"x","param":null,"code":400}}')
        else:
            await answer(call)

    engine.trial_script = short_only
    async with running_gateway(engine) as gateway:
        await assert_quiescent(gateway, engine)
