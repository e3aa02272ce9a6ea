"""The engine falls silent in the middle: comments keep the connection, then one error event ends it."""

import asyncio

from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, after_events, hold
from tests.fakes.gateway import STREAMED, assert_quiescent, events_in, last_error, running_gateway


async def test_silence_gets_comments_and_the_stream_goes_on(engine: FakeEngine) -> None:
    goes_on = asyncio.Event()

    async def pause(call: Call) -> None:
        await goes_on.wait()
        for part in [*EVENTS[2:], DONE]:
            call.chunk(part)
        call.end()

    engine.script = after_events(2, pause)
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        stream = await gateway.chat_until(EVENTS[1] + b": waiting\n\n" * 2, goes_on)
        assert goes_on.is_set()
        assert events_in(stream) == [*EVENTS, DONE]
        await assert_quiescent(gateway, engine)


async def test_comment_never_falls_into_an_event(engine: FakeEngine) -> None:
    goes_on = asyncio.Event()

    async def split(call: Call) -> None:
        call.chunk(EVENTS[2][:20])
        await goes_on.wait()
        for part in [EVENTS[2][20:], DONE]:
            call.chunk(part)
        call.end()

    engine.script = after_events(2, split)
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        stream = await gateway.chat_until(b": waiting\n\n" * 2, goes_on)
        assert stream.replace(b": waiting\n\n", b"") == b"".join([*EVENTS[:3], DONE])
        assert events_in(stream) == [*EVENTS[:3], DONE]
        await assert_quiescent(gateway, engine)


async def test_endless_silence_ends_with_one_error_event_and_frees_the_engine(engine: FakeEngine) -> None:
    engine.script = after_events(2, hold)
    settings = {"GATEWAY_IDLE_TIMEOUT_SECONDS": "0.3", "GATEWAY_HEARTBEAT_SECONDS": "0.1"}
    async with running_gateway(engine, **settings) as gateway:
        response = await gateway.chat(STREAMED)
        assert events_in(response.content)[:-1] == EVENTS[:2]
        assert last_error(response.content)["code"] == "upstream_timeout"
        await asyncio.wait_for(engine.calls[0].disconnected.wait(), 1)
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="timeout") == 1
        await assert_quiescent(gateway, engine)
