"""The engine's stream breaks: one error event says so, and no [DONE] is made up."""

import openai
import pytest

from tests.fakes.engine import EVENTS, Call, FakeEngine, after_events
from tests.fakes.gateway import (
    STREAMED,
    RunningGateway,
    assert_quiescent,
    events_in,
    eventually,
    last_error,
    request_lines,
)
from tests.fakes.scripts import reset

CUTS = {"reset": reset, "fin": Call.fin, "clean end without [DONE]": Call.end}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
async def test_cut_stream_ends_with_one_error_event(engine: FakeEngine, gateway: RunningGateway, cut: object) -> None:
    engine.script = after_events(3, cut)  # type: ignore[arg-type]
    response = await gateway.chat(STREAMED)
    assert response.status_code == 200
    assert events_in(response.content)[:-1] == EVENTS[:3]
    last_error(response.content)
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="truncated") == 1
    await assert_quiescent(gateway, engine)


async def test_cut_stream_is_one_calm_line_in_the_log(
    engine: FakeEngine, gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    engine.script = after_events(3, Call.fin)
    response = await gateway.chat(STREAMED)
    gateway.parts.request_log.flush()
    about = [line["request_id"] for line in request_lines(caplog.records) if line["outcome"] == "truncated"]
    assert about == [response.headers["x-request-id"]]
    assert [record.message for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []
    assert [record for record in caplog.records if record.exc_info] == []
    await assert_quiescent(gateway, engine)


async def test_half_an_event_is_never_shown(engine: FakeEngine, gateway: RunningGateway) -> None:
    def half(call: Call) -> None:
        call.chunk(EVENTS[3][:-9])
        call.fin()

    engine.script = after_events(2, half)
    response = await gateway.chat(STREAMED)
    assert events_in(response.content)[:-1] == EVENTS[:2]
    last_error(response.content)
    await assert_quiescent(gateway, engine)


async def test_sdk_raises_the_error(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = after_events(3, Call.fin)
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none", max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(**STREAMED)  # type: ignore[call-overload]
        with pytest.raises(openai.APIError) as raised:
            async for _ in stream:
                pass
    assert raised.value.code in {"upstream_broken", "upstream_truncated"}
    assert "engine" in raised.value.message
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
async def test_cut_before_the_first_event_keeps_an_honest_status(
    engine: FakeEngine, gateway: RunningGateway, cut: object
) -> None:
    engine.script = after_events(0, cut)  # type: ignore[arg-type]
    response = await gateway.chat(STREAMED)
    assert response.status_code == 502
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="upstream_error") == 1
    await assert_quiescent(gateway, engine)


async def test_engine_that_fails_after_done_spoils_nothing(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def script(call: Call) -> None:
        call.stream_head()
        call.chunk(EVENTS[0] + b"data: [DONE]\n\n")
        call.reset()

    engine.script = script
    response = await gateway.chat(STREAMED)
    assert response.content == EVENTS[0] + b"data: [DONE]\n\n"
    await eventually(lambda: not len(gateway.parts.in_flight))
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="ok") == 1
    await assert_quiescent(gateway, engine)
