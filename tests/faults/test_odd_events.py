"""Events that are odd but sound: trailing `choices: []`, null deltas, usage that comes twice or not at all."""

import openai
import pytest

from tests.fakes.engine import DONE, EVENTS, FakeEngine, usage_event
from tests.fakes.gateway import STREAMED, RunningGateway, assert_quiescent, running_gateway
from tests.fakes.lab.faults import FAULTS
from tests.fakes.scripts import saying


async def test_odd_events_pass_and_tokens_are_counted_once(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = FAULTS["odd-events"].script
    response = await gateway.chat(STREAMED)
    assert b'"choices":[],"other"' in response.content, "only the usage that nobody asked for is taken out"
    assert b'"usage"' not in response.content
    assert response.content.endswith(DONE)
    assert await gateway.metric("gateway_tokens_total", direction="prompt") == 7
    assert await gateway.metric("gateway_tokens_total", direction="completion") == 5
    await assert_quiescent(gateway, engine)


async def test_usage_that_comes_twice_counts_once(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = saying(*EVENTS, usage_event(7, 4), usage_event(7, 5))
    assert (await gateway.chat(STREAMED)).content == b"".join([*EVENTS, DONE])
    assert await gateway.metric("gateway_tokens_total", direction="prompt") == 7
    assert await gateway.metric("gateway_tokens_total", direction="completion") == 5
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("name", ["odd-events", "several-data-lines", "crlf", "one-byte-flushes", "pause-mid-stream"])
async def test_sdk_reads_every_odd_stream_to_its_end(engine: FakeEngine, name: str) -> None:
    engine.script = FAULTS[name].script
    async with (
        running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.1") as gateway,
        openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none", max_retries=0) as sdk,
    ):
        stream = await sdk.chat.completions.create(**STREAMED)  # type: ignore[call-overload]
        pieces = [
            choice.delta.content or "" async for chunk in stream for choice in chunk.choices if choice.delta is not None
        ]
        assert "".join(pieces) == "你好, world 🔥"
        await assert_quiescent(gateway, engine)
