"""The operator's acceptance and load, against the real gateway before a fake engine: sound, broken, and limited."""

import asyncio
import json

import pytest

from ops.acceptance import soundness, speed
from ops.acceptance.asking import Asker
from ops.acceptance.check import ON_CPU, Verdict
from ops.acceptance.speed import Measured
from ops.soak.load import Load
from tests.fakes.call import Call
from tests.fakes.engine import FakeEngine, after_events, answer, hold
from tests.fakes.gateway import RunningGateway, eventually, running_gateway
from tests.fakes.scripts import reset

BY_DEFAULT = {"GATEWAY_RATE_LIMIT_REQUESTS": "120/minute", "GATEWAY_MAX_STREAMS_PER_CLIENT": "16"}


def asker_of(gateway: RunningGateway) -> Asker:
    return Asker(f"http://127.0.0.1:{gateway.port}", "", "ernie-demo")


async def test_a_sound_stack_passes(gateway: RunningGateway) -> None:
    measured = Measured()
    async with asker_of(gateway) as asker:
        checks = [
            *await speed.first_reply(asker, ON_CPU),
            *await speed.series(asker, ON_CPU, measured),
            *await speed.crowd(asker),
            *await soundness.errors(asker),
        ]
    assert [check for check in checks if check.verdict is not Verdict.PASS and "inner path" not in check.name] == []
    assert len(measured.series) == 20
    # Only nginx keeps this one from the outside.
    assert [check.name for check in checks if check.verdict is Verdict.FAIL] == ["an inner path is refused"]


async def test_one_broken_answer_of_twenty_is_a_failure(engine: FakeEngine, gateway: RunningGateway) -> None:
    broken = iter([reset])

    async def once(call: Call) -> None:
        await next(broken, answer)(call)

    engine.script = once
    async with asker_of(gateway) as asker:
        checks = list(await speed.series(asker, ON_CPU, Measured()))
    assert checks[0].verdict is Verdict.FAIL
    assert checks[0].measured == "19 of 20"
    assert "502" in checks[0].reason


async def test_default_limits_allow_what_acceptance_stands_on(engine: FakeEngine) -> None:
    measured = Measured()
    async with running_gateway(engine, **BY_DEFAULT) as gateway, asker_of(gateway) as asker:
        required = [
            *await speed.first_reply(asker, ON_CPU),
            *await speed.series(asker, ON_CPU, measured),
            *await speed.crowd(asker),
        ]
        assert {check.verdict for check in required} == {Verdict.PASS}
        engine.script = after_events(2, hold)
        [check] = await soundness.limits(asker, 16)
        assert check.verdict is Verdict.PASS, check
        assert check.measured.startswith("1 of 17 refused")


async def test_a_limit_below_what_is_asked_skips_with_the_cure(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_REQUESTS="5/minute") as gateway, asker_of(gateway) as asker:
        await speed.first_reply(asker, ON_CPU)
        [check] = await speed.series(asker, ON_CPU, Measured())
    assert check.verdict is Verdict.SKIPPED
    assert check.required
    assert "STACK_API_KEY" in check.reason
    # Nothing was asked that would have been refused.
    assert len([call for call in engine.calls if b"stream_options" in json.dumps(call.json).encode()]) == 1


async def test_the_load_keeps_its_pace_and_leaves_nothing(engine: FakeEngine, gateway: RunningGateway) -> None:
    before = len(engine.calls)
    async with asker_of(gateway) as asker:
        load = Load(asker, streams=3, per_minute=6000)
        task = asyncio.create_task(load.run())
        await eventually(lambda: len(engine.calls) - before >= 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        replies = load.take()
    assert len(replies) >= 7
    assert {reply.fault for reply in replies} == {""}
    assert load.take() == []
