"""API keys and the chat page's key on real sockets: who has one, what it is worth, and that nobody sees it."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.clients import FIVE, at, statuses
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import error_of, request_lines, running_gateway


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
        gateway.parts.request_log.flush()
    assert [line["client"] for line in request_lines(caplog.records) if line["route"] == "chat_completions"] == [
        "key:alices_own",
        "2001:db8::/64",
    ]
    assert "2001:db8" not in metrics
    assert "alice" not in metrics
