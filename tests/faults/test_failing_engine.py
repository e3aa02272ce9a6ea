"""An engine whose health is well and whose answers fail: it is tried, and taken out only if that fails too."""

import asyncio

import pytest

from tests.fakes.engine import Call, FakeEngine, Script, after_events, answer
from tests.fakes.gateway import COMPLETIONS, PROMPT, RunningGateway, assert_quiescent, eventually, running_gateway
from tests.fakes.scripts import refusing


async def break_off(call: Call) -> None:
    call.fin()


FAULTS: dict[str, Script] = {
    "says that it failed": refusing(500, b"", {}),
    "breaks off": break_off,
    "ends early": after_events(2, Call.end),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_an_engine_that_fails_at_everything_is_left_out_until_it_is_sound(
    engine: FakeEngine, fault: Script
) -> None:
    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        engine.script = engine.trial_script = fault
        known = gateway.parts.upstreams.engines[0]
        async with asyncio.timeout(10):
            while known.takes_requests:
                await gateway.client.post(COMPLETIONS, json=PROMPT)
        report = (await gateway.report())["engines"][0]
        assert report["state"] == "warming"
        assert report["waits_for"].startswith("a sound")
        asked = len(engine.calls)
        for _ in range(4):
            response = await gateway.client.post(COMPLETIONS, json=PROMPT)
            assert response.status_code == 200
            assert b"[DONE]" in response.content
        assert len(engine.calls) == asked
        engine.script = engine.trial_script = answer
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine, other)


async def test_requests_that_fail_at_a_sound_engine_take_nobody_away(
    engine: FakeEngine, gateway: RunningGateway
) -> None:
    engine.script = refusing(500, b"", {})
    known = gateway.parts.upstreams.engines[0]
    tried_before = len(engine.trials)
    for _ in range(12):
        assert (await gateway.chat()).status_code == 502
        assert known.takes_requests
    await eventually(lambda: len(engine.trials) > tried_before)
    await eventually(lambda: not known.is_doubted)
    # One for every third at most, and one look may answer several.
    assert len(engine.trials) - tried_before <= 4
    assert known.takes_requests
    await assert_quiescent(gateway, engine)


async def test_an_engine_too_busy_for_the_trial_is_not_condemned(engine: FakeEngine) -> None:
    tried = asyncio.Event()

    async def full(call: Call) -> None:
        tried.set()
        await refusing(503, b"", {})(call)

    async with running_gateway(engine) as gateway:
        engine.script, engine.trial_script = refusing(500, b"", {}), full
        for _ in range(3):
            await gateway.chat()
        await asyncio.wait_for(tried.wait(), 5)
        await eventually(lambda: not gateway.parts.upstreams.engines[0].is_doubted)
        assert await gateway.state() == "ready"
        await assert_quiescent(gateway, engine)
