"""A slow first token is waited for, with signs of life; an endless wait ends with an honest error."""

import asyncio
import time

import pytest

from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    STREAMED,
    assert_quiescent,
    error_of,
    events_in,
    first_token,
    last_error,
    running_gateway,
)


async def test_waiting_stream_gets_comments_and_then_its_answer(engine: FakeEngine) -> None:
    goes_on = asyncio.Event()

    async def late(call: Call) -> None:
        await goes_on.wait()
        for part in [*EVENTS, DONE]:
            call.chunk(part)
        call.end()

    engine.script = after_events(0, late)
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        stream = await gateway.chat_until(b": waiting\n\n" * 3, goes_on)
        assert stream.startswith(b": waiting\n\n" * 3)
        assert events_in(stream) == [*EVENTS, DONE]
        await assert_quiescent(gateway, engine)


async def test_no_first_token_in_time_is_504_when_nothing_was_sent(engine: FakeEngine) -> None:
    engine.script = after_events(0, hold)
    async with running_gateway(engine, **first_token(0.3)) as gateway:
        response = await gateway.chat(STREAMED)
        assert response.status_code == 504
        assert error_of(response)["code"] == "upstream_timeout"
        await asyncio.wait_for(engine.calls[0].disconnected.wait(), 1)
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="timeout") == 1
        await assert_quiescent(gateway, engine)


async def test_no_first_token_in_time_is_an_error_event_after_heartbeats(engine: FakeEngine) -> None:
    engine.script = after_events(0, hold)
    settings = {"GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": "0.3", "GATEWAY_HEARTBEAT_SECONDS": "0.1"}
    async with running_gateway(engine, **settings) as gateway:
        response = await gateway.chat(STREAMED)
        assert response.status_code == 200
        assert last_error(response.content)["code"] == "upstream_timeout"
        await asyncio.wait_for(engine.calls[0].disconnected.wait(), 1)
        await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("stream", [True, False])
async def test_engine_that_says_nothing_at_all_is_504(engine: FakeEngine, *, stream: bool) -> None:
    engine.script = hold
    settings = {"GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": "0.3", "GATEWAY_ANSWER_TIMEOUT_SECONDS": "0.3"}
    async with running_gateway(engine, **settings) as gateway:
        response = await gateway.chat(STREAMED if stream else None)
        assert response.status_code == 504
        assert error_of(response)["code"] == "upstream_timeout"
        await asyncio.wait_for(engine.calls[0].disconnected.wait(), 1)
        await assert_quiescent(gateway, engine)


async def test_whole_answer_that_never_completes_is_504(engine: FakeEngine) -> None:
    async def half(call: Call) -> None:
        call.head(headers={"content-type": "application/json"})
        call.chunk(b'{"id":')
        await hold(call)

    engine.script = half
    async with running_gateway(engine, GATEWAY_ANSWER_TIMEOUT_SECONDS="0.3") as gateway:
        started_at = time.monotonic()
        assert (await gateway.chat()).status_code == 504
        assert time.monotonic() - started_at < 2
        await assert_quiescent(gateway, engine)


async def test_whole_answer_may_take_longer_than_a_first_token(engine: FakeEngine) -> None:
    async def slow(call: Call) -> None:
        await asyncio.sleep(0.3)
        await answer(call)

    async with running_gateway(engine, **first_token(0.1)) as gateway:
        engine.script = slow
        assert (await gateway.chat()).status_code == 200
        await assert_quiescent(gateway, engine)
