"""While the notice is up nobody new is let in; everything else goes on."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from launcher.command import Command
from launcher.draining import VARIABLE, Draining, Notice


async def application(scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@pytest.fixture
def notice(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notice]:
    with Notice() as notice:
        [path] = notice.known_to(Command((), {})).environment.values()
        monkeypatch.setenv(VARIABLE, path)
        yield notice


async def statuses() -> dict[str, int]:
    transport = httpx.ASGITransport(Draining(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        return {
            "health": (await client.get("/health")).status_code,
            "metrics": (await client.get("/metrics")).status_code,
            "chat": (await client.post("/v1/chat/completions", json={})).status_code,
        }


async def test_the_notice_closes_the_door_and_says_so(notice: Notice) -> None:
    assert await statuses() == {"health": 200, "metrics": 200, "chat": 200}
    notice.put_up()
    assert await statuses() == {"health": 503, "metrics": 200, "chat": 503}


async def test_the_refusal_says_what_to_do(notice: Notice) -> None:
    notice.put_up()
    transport = httpx.ASGITransport(Draining(application))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        refused = await client.post("/v1/completions")
    assert int(refused.headers["retry-after"]) > 0
    assert set(json.loads(refused.content)["error"]) == {"message", "type", "param", "code"}


async def test_without_a_launcher_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert set((await statuses()).values()) == {200}


def test_nobody_else_can_put_the_notice_up(notice: Notice) -> None:
    assert notice.path.parent.stat().st_mode & 0o077 == 0
