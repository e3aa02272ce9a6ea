"""What a request costs in tokens, however it ends."""

import json

import pytest

from tests.fakes.clients import at, flood, statuses
from tests.fakes.engine import EVENTS, FakeEngine, after_events, event, hold, usage_event
from tests.fakes.gateway import CHAT, STREAMED, RunningGateway, assert_quiescent, eventually, running_gateway
from tests.fakes.scripts import refusing, saying

MADE = 12  # tokens, by the fake's own figures
TOKENS = {"GATEWAY_RATE_LIMIT_TOKENS": "3000/minute"}


async def left(gateway: RunningGateway, address: str = "203.0.113.1") -> int:
    """Return how many tokens a client has left, as the next answer that is not counted in tokens tells."""
    response = await gateway.chat({**CHAT, "max_tokens": 1}, headers=at(address))
    assert response.status_code == 200, response.text
    reserved = len(json.dumps({**CHAT, "max_tokens": 1}, ensure_ascii=False, separators=(",", ":")).encode()) // 4 + 2
    return int(response.headers["x-ratelimit-remaining-tokens"]) + reserved


async def test_tokens_are_settled_with_what_was_made(engine: FakeEngine) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        responses = [await gateway.chat(body, headers=at("203.0.113.1")) for body in (CHAT, STREAMED, CHAT)]
        assert statuses(responses) == {200: 3}
        assert await left(gateway) == 3000 - 3 * MADE
        # Four at once cannot all reserve 2,048.
        responses = await flood(gateway, 4, "203.0.113.2")
        assert statuses(responses)[429] >= 1
        assert await gateway.metric("gateway_rate_limited_total", limit="tokens") >= 1


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_a_request_that_failed_gives_its_tokens_back(engine: FakeEngine, status: int) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        engine.script = refusing(status)
        assert not (await gateway.chat(headers=at("203.0.113.1"))).is_success
        assert not (await gateway.chat(STREAMED, headers=at("203.0.113.1"))).is_success
        await assert_quiescent(gateway, engine)
        assert await left(gateway) == 3000


async def test_a_stream_that_was_cut_costs_its_prompt_and_what_came(engine: FakeEngine) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        engine.script = after_events(3, lambda call: call.fin())
        response = await gateway.chat(STREAMED, headers=at("203.0.113.1"))
        assert b"upstream_broken" in response.content
        await assert_quiescent(gateway, engine)
        assert 3000 - 3 - 60 < await left(gateway) < 3000 - 3


async def test_a_client_that_leaves_pays_what_was_made(engine: FakeEngine) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        engine.script = after_events(3, lambda call: call.disconnected.wait())
        client = await gateway.raw(STREAMED)
        await client.reader.readuntil(EVENTS[2])
        client.close()
        await eventually(lambda: not len(gateway.parts.in_flight))
        await assert_quiescent(gateway, engine)
        assert 3000 - 3 - MADE - 60 < await left(gateway, "127.0.0.1") < 3000 - 3 - MADE


async def test_a_client_that_leaves_before_the_first_token_pays_its_prompt(engine: FakeEngine) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        engine.script = hold
        client = await gateway.raw({**STREAMED, "user": "u" * 200})
        await engine.next_call()
        client.close()
        await eventually(lambda: not len(gateway.parts.in_flight))
        await assert_quiescent(gateway, engine)
        assert 3000 - MADE - 150 < await left(gateway, "127.0.0.1") < 3000 - MADE - 50


async def test_more_than_was_reserved_is_charged(engine: FakeEngine) -> None:
    async with running_gateway(engine, **TOKENS) as gateway:
        engine.script = saying(event("x"), usage_event(100, 9000))
        assert (await gateway.chat(STREAMED)).status_code == 200
        refused = await gateway.chat({**CHAT, "max_tokens": 1})
        assert refused.status_code == 429
        assert 55 <= int(refused.headers["retry-after"]) <= 60
