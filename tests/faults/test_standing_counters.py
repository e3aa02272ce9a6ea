"""Counters that stand still are no proof: an engine that answers a probe keeps its traffic."""

from tests.fakes.engine import FakeEngine, after_events, hold
from tests.fakes.gateway import STREAMED, assert_quiescent, eventually, running_gateway


async def test_engine_that_answers_probes_keeps_its_traffic(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_STALL_SECONDS="0.2") as gateway:
        engine.script = after_events(1, hold)
        engine.fixed_running = 8
        trials = len(engine.trials)
        client = await gateway.raw(STREAMED)
        # Each probe that is answered buys one more stall time: three of them are three times too long.
        await eventually(lambda: len(engine.trials) >= trials + 3)
        assert gateway.parts.upstreams.engines[0].takes_requests
        assert await gateway.state() == "ready"
        client.close()
        engine.fixed_running = None
        await assert_quiescent(gateway, engine)
