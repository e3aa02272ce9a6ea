"""Fair shares on real sockets: who asks is told apart, gets exactly its share, and is told the truth about the rest."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.settings import SettingsError

from tests.fakes.engine import EVENTS, FakeEngine, after_events, event, hold, usage_event
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    check_retry_after,
    error_of,
    eventually,
    running_gateway,
)
from tests.fakes.scripts import refusing, saying

MADE = 12  # tokens, by the fake's own figures
FIVE = {"GATEWAY_RATE_LIMIT_REQUESTS": "5/minute"}
TOKENS = {"GATEWAY_RATE_LIMIT_TOKENS": "3000/minute"}


def at(address: str) -> dict[str, str]:
    """Say as nginx does where a request came from."""
    return {"x-forwarded-for": address}


def statuses(responses: list[httpx.Response]) -> Counter[int]:
    return Counter(response.status_code for response in responses)


async def flood(gateway: RunningGateway, number: int, address: str = "203.0.113.1") -> list[httpx.Response]:
    return await asyncio.gather(*(gateway.chat(headers=at(address)) for _ in range(number)))


async def left(gateway: RunningGateway, address: str = "203.0.113.1") -> int:
    """Return how many tokens a client has left, as the next answer that is not counted in tokens tells."""
    response = await gateway.chat({**CHAT, "max_tokens": 1}, headers=at(address))
    assert response.status_code == 200, response.text
    reserved = len(json.dumps({**CHAT, "max_tokens": 1}, ensure_ascii=False, separators=(",", ":")).encode()) // 4 + 2
    return int(response.headers["x-ratelimit-remaining-tokens"]) + reserved


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


def keys_file(folder: Path, *lines: str, **keys: str) -> dict[str, str]:
    file = folder / "api-keys"
    hashed = [f"key {name} {tier} sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name, tier in keys.items()]
    file.write_text("\n".join([*lines, *hashed, ""]), encoding="utf-8")
    return {"GATEWAY_API_KEYS_FILE": str(file)}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_keys_are_needed_and_each_has_its_tier(engine: FakeEngine, tmp_path: Path) -> None:
    given = keys_file(tmp_path, "tier team requests=7/minute", alice="default", bob="team")
    async with running_gateway(engine, **given, **FIVE) as gateway:
        for wrong in ({}, bearer("mallory"), {"authorization": "Basic alice"}):
            for refused in (await gateway.chat(headers=wrong), await gateway.client.get("/v1/models", headers=wrong)):
                assert refused.status_code == 401
                assert error_of(refused)["code"] == "invalid_api_key"
                assert refused.headers["www-authenticate"] == "Bearer"
        alices = [await gateway.chat(headers=bearer("alice") | at(f"203.0.113.{number}")) for number in range(9)]
        bobs = [await gateway.chat(headers=bearer("bob")) for _ in range(9)]
        assert (statuses(alices), statuses(bobs)) == ({200: 5, 429: 4}, {200: 7, 429: 2})
        assert (await gateway.client.get("/readyz")).status_code == 200
        assert (await gateway.client.get("/v1/models", headers=bearer("alice"))).status_code == 200


async def test_a_key_that_is_added_counts_without_a_restart(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.identity.keys.LOOK_SECONDS", 0.0)
    given = keys_file(tmp_path, alice="default")
    async with running_gateway(engine, **given, GATEWAY_ANONYMOUS="on") as gateway:
        assert (await gateway.chat()).status_code == 200
        assert (await gateway.chat(headers=bearer("bob"))).status_code == 401
        keys_file(tmp_path, alice="default", bob="default")
        assert (await gateway.chat(headers=bearer("bob"))).status_code == 200
        keys_file(tmp_path, "nonsense")
        assert (await gateway.chat(headers=bearer("bob"))).status_code == 200


@pytest.mark.parametrize("keys", [False, True])
async def test_two_people_at_the_chat_page_are_two_clients(engine: FakeEngine, tmp_path: Path, *, keys: bool) -> None:
    secret = tmp_path / "secrets" / "chat-ui-key"
    given = {"GATEWAY_CHAT_UI_KEY_FILE": str(secret), **FIVE} | (keys_file(tmp_path, alice="default") if keys else {})
    async with running_gateway(engine, **given) as gateway:
        page = bearer(secret.read_text(encoding="utf-8").strip())

        async def person(address: str, number: int, **headers: str) -> Counter[int]:
            told = {**page, "x-end-user-address": address, **headers}
            return statuses([await gateway.chat(headers=told) for _ in range(number)])

        assert await person("203.0.113.1", 8) == {200: 5, 429: 3}
        assert await person("203.0.113.2", 5) == {200: 5}
        assert await person("203.0.113.2", 1, authorization="Bearer another") == ({401: 1} if keys else {200: 1})


async def test_the_log_says_who_it_was_and_no_key(
    engine: FakeEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    given = keys_file(tmp_path, alices_own="default")
    async with running_gateway(engine, **given, GATEWAY_ANONYMOUS="on") as gateway:
        await gateway.chat(headers=bearer("alices_own"))
        await gateway.chat(headers=at("2001:db8::7"))
        metrics = (await gateway.client.get("/metrics")).text
    lines: list[Any] = [record.__dict__["fields"] for record in caplog.records if record.name == "gateway.requests"]
    assert [line["client"] for line in lines if line["route"] == "chat_completions"] == [
        "key:alices_own",
        "2001:db8::/64",
    ]
    assert "2001:db8" not in metrics
    assert "alice" not in metrics


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
