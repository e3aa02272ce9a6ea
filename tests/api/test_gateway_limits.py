"""Fair shares on real sockets: who asks is told apart, gets exactly its share, and is told the truth about the rest."""

import asyncio
import time

import pytest
from gateway.settings import SettingsError

from tests.fakes.clients import FIVE, at, flood, statuses
from tests.fakes.engine import FakeEngine, hold
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    assert_quiescent,
    check_retry_after,
    error_of,
    eventually,
    running_gateway,
)


async def test_exactly_the_limit_passes_and_the_rest_hears_when(engine: FakeEngine) -> None:
    async with running_gateway(engine, **FIVE) as gateway:
        responses = await flood(gateway, 15)
        assert statuses(responses) == {200: 5, 429: 10}
        assert len(engine.calls) == 5
        for response in responses:
            assert response.headers["x-ratelimit-limit-requests"] == "5"
            assert "x-ratelimit-limit-tokens" not in response.headers
            if response.status_code == 429:
                error = error_of(response)
                assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
                check_retry_after(response)
                assert response.headers["x-ratelimit-remaining-requests"] == "0"
        rest = sorted(
            response.headers["x-ratelimit-remaining-requests"] for response in responses if response.is_success
        )
        assert rest == ["0", "1", "2", "3", "4"]
        assert await gateway.metric("gateway_rate_limited_total", limit="requests") == 10
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="rate_limited") == 10


async def test_who_floods_does_not_block_another(engine: FakeEngine) -> None:
    async with running_gateway(engine, **FIVE) as gateway:
        assert statuses(await flood(gateway, 30)) == {200: 5, 429: 25}
        assert statuses(await flood(gateway, 5, "203.0.113.2")) == {200: 5}
        assert statuses(await flood(gateway, 5, "2001:db8::1")) == {200: 5}
        assert statuses(await flood(gateway, 5, "2001:db8::ffff")) == {429: 5}
        assert statuses(await flood(gateway, 5, "::ffff:203.0.113.2")) == {429: 5}


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "x-end-user-address"])
async def test_a_client_cannot_make_itself_another(engine: FakeEngine, header: str) -> None:
    """A proxy appends or overwrites; what a client writes stands before that, or in a header that nobody believes."""
    junk = ["23189987", "a" * 10_000, "1.2.3.4, " * 1000 + "x", "", "for=;;;", '"', "::::", "%00"]
    async with running_gateway(engine, GATEWAY_TRUSTED_PROXIES="10.0.0.0/8", **FIVE) as gateway:
        claims = [*junk, *(f"198.51.100.{number}" for number in range(22))]
        responses = [await gateway.chat(headers={header: claim}) for claim in claims]
        assert statuses(responses) == {200: 5, 429: 25}
    async with running_gateway(engine, **FIVE) as gateway:
        own = [(header, claim) for claim in claims]
        responses = [await gateway.chat(headers=[one, ("x-forwarded-for", "203.0.113.9")]) for one in own]
        assert statuses(responses) == {200: 5, 429: 25}


async def test_who_waits_as_long_as_told_gets_in(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_REQUESTS="5/second") as gateway:
        for _ in range(2):
            responses = await flood(gateway, 20)
            [wait] = {int(response.headers["retry-after"]) for response in responses if response.status_code == 429}
            await asyncio.sleep(wait)
            assert statuses(await flood(gateway, 5)) == {200: 5}
            await asyncio.sleep(1.1)


async def test_no_second_holds_more_than_its_five(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_REQUESTS="5/second") as gateway:
        ends_at = time.monotonic() + 2.5
        while time.monotonic() < ends_at:
            await gateway.chat()
        came = [call.received_at for call in engine.calls]
        # Between the gateway's clock and the engine's lies the way between them.
        assert max(sum(start <= later < start + 0.9 for later in came) for start in came) == 5
        assert len(came) >= 10


async def test_probes_and_metrics_are_never_limited(engine: FakeEngine) -> None:
    async with running_gateway(engine, **FIVE, GATEWAY_RATE_LIMIT_TOKENS="1/day") as gateway:
        await flood(gateway, 6)
        for path in ("/livez", "/readyz", "/metrics", "/v1/models"):
            answers = [await gateway.client.get(path) for _ in range(100)]
            assert statuses(answers) == {200: 100}, path


async def test_a_refused_body_costs_nothing(engine: FakeEngine) -> None:
    async with running_gateway(engine, **FIVE) as gateway:
        assert statuses([await gateway.chat({"messages": []}) for _ in range(20)]) == {400: 20}
        assert statuses(await flood(gateway, 6)) == {200: 5, 429: 1}


async def test_a_large_body_costs_a_request_whatever_it_is_and_is_not_read_by_who_has_none(engine: FakeEngine) -> None:
    """Else who sends nothing but junk of 2 MiB holds up all the others, uncounted."""
    large = b'{"messages": [' + b'{"a": 1}, ' * 2000 + b"1]}"
    async with running_gateway(engine, **FIVE) as gateway:
        responses = [await gateway.client.post("/v1/chat/completions", content=large) for _ in range(8)]
        assert statuses(responses) == {400: 5, 429: 3}
        assert all("x-ratelimit-remaining-requests" in response.headers for response in responses)
        check_retry_after(responses[-1])
        assert (await gateway.chat()).status_code == 429
        own = {**CHAT, "messages": [{"role": "user", "content": "a" * len(large)}]}
        assert statuses([await gateway.chat(own, headers=at("203.0.113.2")) for _ in range(6)]) == {200: 5, 429: 1}
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_TOKENS="9000/minute") as gateway:
        for _ in range(3):
            refused = await gateway.client.post("/v1/chat/completions", content=large)
            assert (refused.status_code, refused.headers["x-ratelimit-remaining-tokens"]) == (400, "1947")
        assert (await gateway.chat()).status_code == 200, "it has cost no tokens"


async def test_streams_at_a_time_are_counted_and_freed_however_they_end(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_MAX_STREAMS_PER_CLIENT="3") as gateway:
        engine.script = hold
        clients = [await gateway.raw(body) for body in (STREAMED, CHAT, STREAMED)]
        await engine.next_call(3)
        refused = await gateway.chat(STREAMED)
        assert refused.status_code == 429
        assert error_of(refused)["code"] == "rate_limit_exceeded"
        assert int(refused.headers["retry-after"]) >= 1
        assert await gateway.metric("gateway_rate_limited_total", limit="streams") == 1
        other = asyncio.create_task(gateway.chat(STREAMED, headers=at("203.0.113.2")))
        await engine.next_call(4)
        clients[0].close()
        clients[1].reset()
        other.cancel()
        await eventually(lambda: len(gateway.parts.in_flight) == 1)
        tasks = [asyncio.create_task(gateway.chat(STREAMED)) for _ in range(2)]
        await engine.next_call(6)
        assert (await gateway.chat(STREAMED)).status_code == 429
        for task in tasks:
            task.cancel()
        clients[2].close()
        await assert_quiescent(gateway, engine)


async def test_limits_hold_while_a_request_waits_for_an_engine(engine: FakeEngine) -> None:
    await engine.stop()
    room = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20", "GATEWAY_MAX_STREAMS_PER_CLIENT": "2"}
    async with running_gateway(engine, wait=False, **room) as gateway:
        waiting = [asyncio.create_task(gateway.chat(headers=at("203.0.113.1"))) for _ in range(2)]
        await eventually(lambda: len(gateway.parts.admission) == 2)
        assert (await gateway.chat(headers=at("203.0.113.1"))).status_code == 429
        await engine.start()
        assert statuses(await asyncio.gather(*waiting)) == {200: 2}


async def test_a_gateway_that_starts_anew_has_forgotten_and_serves(engine: FakeEngine) -> None:
    for _ in range(2):
        async with running_gateway(engine, **FIVE) as gateway:
            assert statuses(await flood(gateway, 8)) == {200: 5, 429: 3}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GATEWAY_RATE_LIMIT_REQUESTS", "60", "60/minute"),
        ("GATEWAY_RATE_LIMIT_TOKENS", "1/fortnight", "second, minute, hour or day"),
        ("GATEWAY_MAX_STREAMS_PER_CLIENT", "0", "whole number"),
        ("GATEWAY_TRUSTED_PROXIES", "10.0.0.0/33", "10.0.0.0/8"),
        ("GATEWAY_TRUSTED_PROXIES", "10.0.0.1/8", "host bits"),
        ("GATEWAY_STATE_URL", "valkey:6379", "redis://"),
        ("GATEWAY_WORKERS", "2", "GATEWAY_STATE_URL"),
        ("GATEWAY_ANONYMOUS", "perhaps", "'on' or 'off'"),
        ("GATEWAY_API_KEYS_FILE", "/nonexistent/keys", "make key"),
        ("GATEWAY_CHAT_UI_KEY_FILE", "/dev/null/key", "neither read nor made"),
    ],
)
async def test_a_wrong_setting_stops_the_start_by_name(engine: FakeEngine, name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        async with running_gateway(engine, **{name: value}):
            pass
    assert str(refused.value).startswith(name)
    assert said in str(refused.value)
