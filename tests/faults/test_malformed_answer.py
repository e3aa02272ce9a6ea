"""Answers that are not what was asked for: refused before the first byte, relayed whole where they are only odd."""

import gzip
import random
from typing import Any

import pytest
from gateway import sse

from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, completion, event
from tests.fakes.gateway import CHAT, STREAMED, RunningGateway, assert_quiescent, error_of, last_error
from tests.fakes.scripts import sending

ODD_STREAMS = {
    "vLLM's own": b"".join([*EVENTS, DONE]),
    "CRLF": b"".join([*EVENTS, DONE]).replace(b"\n", b"\r\n"),
    "CR": b"".join([*EVENTS, DONE]).replace(b"\n", b"\r"),
    "several data lines": b'data: {"choices":\ndata: []}\n\n' + DONE,
    "comments, ids and retries": b": ping\n\nid: 1\nretry: 5\n\n" + EVENTS[0] + b": pong\n\n" + DONE,
    "emoji and escapes": event("🔥\U0001f468\u200d\U0001f469") + event('"usage":{"x":1} data: [DONE]\n\n') + DONE,
    "no space after data": b"".join([*EVENTS, DONE]).replace(b"data: ", b"data:"),
    "null usage": EVENTS[0][:-3] + b',"usage":null}\n\n' + DONE,
    "bytes after the mark": b"".join([*EVENTS, DONE]) + b": bye\n\n",
}


@pytest.mark.parametrize("stream", ODD_STREAMS.values(), ids=ODD_STREAMS.keys())
async def test_odd_streams_pass_byte_for_byte(engine: FakeEngine, gateway: RunningGateway, stream: bytes) -> None:
    chance = random.Random(7)  # noqa: S311  (cuts, not secrets)
    for sizes in (lambda: 1, lambda: chance.randint(1, 40), lambda: len(stream)):
        engine.script = sending(stream, sizes)
        response = await gateway.chat(STREAMED)
        # What follows the mark is of no use to anybody; it passes only if it comes with it.
        assert response.content in {stream, stream.removesuffix(b": bye\n\n")}
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="ok") == 3
    await assert_quiescent(gateway, engine)


async def test_endless_event_ends_with_one_error_event(engine: FakeEngine, gateway: RunningGateway) -> None:
    endless = EVENTS[0] + b"data: " + b"x" * (sse.MAX_EVENT_BYTES + 1)
    engine.script = sending(endless, lambda: 65_536)
    response = await gateway.chat(STREAMED)
    assert response.content.startswith(EVENTS[0])
    assert last_error(response.content)["code"] == "upstream_invalid_response"
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("body", [STREAMED, CHAT], ids=["streamed", "whole"])
async def test_compressed_answer_that_nobody_asked_for_is_502(
    engine: FakeEngine, gateway: RunningGateway, body: Any
) -> None:
    async def script(call: Call) -> None:
        assert call.header("accept-encoding") == "identity"
        kind = "text/event-stream" if body is STREAMED else "application/json"
        packed = gzip.compress(completion())
        call.whole(200, packed, {"content-type": kind, "content-encoding": "gzip"})

    engine.script = script
    response = await gateway.chat(body)
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_invalid_response"
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize(
    ("body", "content_type", "answer"),
    [
        (STREAMED, "application/json", completion()),
        (CHAT, "text/event-stream", b"".join([*EVENTS, DONE])),
        (CHAT, "application/json", b"<html></html>"),
        (CHAT, "application/json", b""),
    ],
    ids=["JSON for a stream", "a stream for JSON", "HTML", "nothing"],
)
async def test_answer_of_another_kind_is_502(
    engine: FakeEngine, gateway: RunningGateway, body: Any, content_type: str, answer: bytes
) -> None:
    engine.script = sending(answer, lambda: 1000, content_type)
    response = await gateway.chat(body)
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_invalid_response"
    await assert_quiescent(gateway, engine)


async def test_what_is_no_http_is_502(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def script(call: Call) -> None:
        call.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        call.fin()

    engine.script = script
    response = await gateway.chat()
    assert response.status_code == 502
    error_of(response)
    await assert_quiescent(gateway, engine)
