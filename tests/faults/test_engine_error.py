"""What the engine refuses keeps its status and body in both modes; what it breaks becomes an honest 5xx."""

import json

import openai
import pytest

from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, answer, event
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    error_of,
    events_in,
    last_error,
)
from tests.fakes.scripts import refusing, words

BOTH_MODES = (STREAMED, CHAT)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429])
async def test_refusals_keep_status_and_body(engine: FakeEngine, gateway: RunningGateway, status: int) -> None:
    engine.script = refusing(status, words(status), {"retry-after": "7"} if status == 429 else {})
    for body in BOTH_MODES:
        response = await gateway.chat(body)
        assert response.status_code == status
        assert response.content == words(status)
        assert response.headers.get("retry-after") == ("7" if status == 429 else None)
    outcome = "rate_limited" if status == 429 else "client_error"
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome=outcome) == 2
    assert len(engine.calls) == 2
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize(
    ("status", "becomes", "code"),
    [
        (500, 502, "upstream_failed"),
        (501, 502, "upstream_failed"),
        (503, 503, "overloaded"),
        (504, 504, "upstream_timeout"),
        (302, 502, "upstream_invalid_response"),
        (204, 502, "upstream_invalid_response"),
    ],
)
async def test_faults_become_ours(
    engine: FakeEngine, gateway: RunningGateway, status: int, becomes: int, code: str
) -> None:
    secret = b"Traceback: secret" if status != 204 else b""
    engine.script = refusing(status, secret, {"retry-after": "9", "location": "http://127.0.0.1:9/"})
    for body in BOTH_MODES:
        response = await gateway.chat(body)
        assert response.status_code == becomes
        assert error_of(response)["code"] == code
        assert "secret" not in response.text
        assert response.headers.get("retry-after") == ("9" if becomes == 503 else None)
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("odd", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "99999999", "1.5", "\u00fc", ""])
async def test_odd_retry_after_is_not_passed_on(engine: FakeEngine, gateway: RunningGateway, odd: str) -> None:
    engine.script = refusing(503, b"", {"retry-after": odd})
    assert (await gateway.chat()).headers["retry-after"] == "5"
    engine.script = refusing(429, words(429), {"retry-after": odd})
    assert "retry-after" not in (await gateway.chat()).headers
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"detail": "no such LoRA"}', "no such LoRA"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b"<html>nginx</html>", "The engine refused the request with status 400."),
        (b"", "The engine refused the request with status 400."),
        (b"[1]", "The engine refused the request with status 400."),
    ],
)
async def test_refusal_of_another_shape_gets_ours(
    engine: FakeEngine, gateway: RunningGateway, body: bytes, message: str
) -> None:
    engine.script = refusing(400, body)
    response = await gateway.chat()
    assert response.status_code == 400
    assert error_of(response)["message"] == message
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize(("code", "status"), [(400, 400), (404, 404), (500, 502), ("odd", 502)])
async def test_error_as_first_event_becomes_a_status(
    engine: FakeEngine, gateway: RunningGateway, code: object, status: int
) -> None:
    async def script(call: Call) -> None:
        call.stream_head()
        call.chunk(b"data: " + json.dumps({"error": {"message": "no", "type": "X", "code": code}}).encode() + b"\n\n")
        call.chunk(DONE)
        call.end()

    engine.script = script
    response = await gateway.chat(STREAMED)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(("status", "said"), [(500, "The engine failed"), (400, "stack trace (above)")])
async def test_engines_own_error_event_ends_the_stream_once(
    engine: FakeEngine, gateway: RunningGateway, *, done: bool, apart: bool, status: int, said: str
) -> None:
    error = b'data: {"error":{"message":"See stack trace (above)","type":"X","param":null,"code":%d}}\n\n' % status

    async def script(call: Call) -> None:
        call.stream_head()
        parts = [EVENTS[0], error, *([DONE] if done else [])]
        for part in parts if apart else [b"".join(parts)]:
            call.chunk(part)
        call.end()

    engine.script = script
    response = await gateway.chat(STREAMED)
    assert events_in(response.content)[:-1] == EVENTS[:1]
    assert said in last_error(response.content)["message"]
    outcome = "upstream_error" if status == 500 else "truncated"
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome=outcome) == 1
    await assert_quiescent(gateway, engine)


async def test_text_that_speaks_of_errors_is_no_error(engine: FakeEngine, gateway: RunningGateway) -> None:
    text = event('data: {"error": {"message": "x"}}')

    async def script(call: Call) -> None:
        call.stream_head()
        call.chunk(text + DONE)
        call.end()

    engine.script = script
    assert (await gateway.chat(STREAMED)).content == text + DONE
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="ok") == 1
    await assert_quiescent(gateway, engine)


async def test_sdk_retries_only_what_may_succeed(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def once_full(call: Call) -> None:
        if len(engine.calls) == 1:
            call.whole(503, words(503), {"retry-after": "0"})
        else:
            await answer(call)

    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none", max_retries=2) as sdk:
        engine.script = once_full
        reply = await sdk.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert reply.choices[0].message.content == "你好, world 🔥"
        assert len(engine.calls) == 2
        engine.script = refusing(400, words(400))
        with pytest.raises(openai.BadRequestError) as refused:
            await sdk.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert refused.value.message.endswith("模型 400'}") or "模型 400" in refused.value.message
        assert refused.value.request_id
        assert len(engine.calls) == 3
    await assert_quiescent(gateway, engine)
