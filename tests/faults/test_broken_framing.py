"""HTTP framing that lies: lengths, chunks, a second answer that nobody asked for."""

import pytest

from tests.fakes.engine import EVENTS, FakeEngine
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    error_of,
    events_in,
    eventually,
    last_error,
    running_gateway,
)
from tests.fakes.lab.faults import FAULTS


@pytest.mark.parametrize("name", ["length-too-long", "length-too-short", "two-framings"])
async def test_whole_answer_of_a_false_length_is_502(engine: FakeEngine, gateway: RunningGateway, name: str) -> None:
    engine.script = FAULTS[name].script
    response = await gateway.chat(CHAT)
    assert response.status_code == 502
    assert error_of(response)["code"] in {"upstream_broken", "upstream_invalid_response"}
    await assert_quiescent(gateway, engine)


async def test_broken_chunk_ends_a_whole_answer_at_once(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = FAULTS["bad-chunk"].script
    response = await gateway.chat(CHAT, timeout=5)
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_broken"
    await assert_quiescent(gateway, engine)


async def test_broken_chunk_ends_a_stream_at_once_with_one_error_event(engine: FakeEngine) -> None:
    engine.script = FAULTS["bad-chunk"].script
    # Heartbeats make the relay read again after the connection is lost.
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.2") as gateway:
        response = await gateway.chat(STREAMED, timeout=5)
        assert events_in(response.content)[:-1] == EVENTS[:2]
        assert last_error(response.content)["code"] == "upstream_broken"
        await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("body", [STREAMED, CHAT], ids=["streamed", "whole"])
async def test_second_answer_reaches_nobody(engine: FakeEngine, gateway: RunningGateway, body: object) -> None:
    engine.script = FAULTS["second-answer"].script
    for _ in range(3):
        response = await gateway.chat(body)
        assert response.status_code == 200
        assert "SMUGGLED" not in response.text
    await eventually(lambda: not len(gateway.parts.in_flight))
    await assert_quiescent(gateway, engine)
