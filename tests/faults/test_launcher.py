"""A launcher that says nothing, or nothing sensible: its engines go on, and are watched as ever."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.fakes.call import Call
from tests.fakes.engine import FakeEngine, hold
from tests.fakes.gateway import (
    COMPLETIONS,
    PROMPT,
    RunningGateway,
    assert_quiescent,
    eventually,
    running_gateway,
)
from tests.fakes.launcher import FakeLauncher
from tests.fakes.scripts import Script, writing

ROOM = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20"}
SOUND = {"version": 1, "stage": "serving", "since": 1.5, "engines": []}


@pytest.fixture
async def launcher(engine: FakeEngine) -> AsyncIterator[FakeLauncher]:
    """A launcher of one sound engine."""
    async with FakeLauncher() as fake:
        fake.runs(engine.port)
        yield fake


@asynccontextmanager
async def before(launcher: FakeLauncher, **settings: str) -> AsyncIterator[RunningGateway]:
    async with running_gateway(GATEWAY_UPSTREAMS=launcher.upstream, wait=False, **settings) as gateway:
        yield gateway


def saying(body: bytes, status: int = 200) -> Script:
    async def script(call: Call) -> None:
        call.whole(status, body)

    return script


async def endless(call: Call) -> None:
    """Say a status that is sound as far as it comes, and never ends."""
    call.head(headers={"content-type": "application/json"})
    call.chunk(json.dumps(SOUND).encode())
    while True:
        call.chunk(b" " * 16_384)
        await asyncio.sleep(0.001)


FAULTS: dict[str, Script] = {
    "no JSON": saying(b"<html>"),
    "404": saying(b"{}", 404),
    "500": saying(json.dumps(SOUND).encode(), 500),
    "a redirect": writing(b"HTTP/1.1 302 Found\r\nlocation: /status\r\ncontent-length: 0\r\n\r\n"),
    "no HTTP": writing(b"SSH-2.0-x\r\n"),
    "truncated": writing(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + json.dumps(SOUND).encode()),
    "closed": writing(),
    "reset": writing(then=Call.reset),
    "silent": hold,
    "huge": saying(json.dumps({**SOUND, "x": "x" * 200_000}).encode()),
    "endless": endless,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_no_status_takes_nobody_away_and_is_logged_once(
    engine: FakeEngine,
    launcher: FakeLauncher,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def complaints() -> list[str]:
        return [record.message for record in caplog.records if "does not say what it runs" in record.message]

    with caplog.at_level(logging.INFO, "gateway.readiness"):
        async with before(launcher) as gateway:
            await eventually(lambda: gateway.parts.upstreams.ready)
            asked = launcher.asked
            with monkeypatch.context() as patched:
                # Only now, and only where it is waited for: a sound answer may take longer on a busy machine.
                patched.setattr("gateway.readiness.following.ANSWER_SECONDS", 0.1 if fault == "silent" else 2)
                launcher.script = FAULTS[fault]
                await eventually(lambda: launcher.asked >= asked + 4)
                assert len(complaints()) == 1
            assert "Traceback" not in caplog.text
            [known] = gateway.parts.upstreams.engines
            assert known.takes_requests
            launcher.script = None
            await eventually(lambda: "launcher answers" in caplog.text)
            await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("fault", ["no JSON", "404", "silent"])
async def test_launcher_that_never_was_one_is_shown_as_such(
    launcher: FakeLauncher, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.readiness.following.ANSWER_SECONDS", 0.1)
    launcher.script = FAULTS[fault]
    async with before(launcher) as gateway:
        await eventually(lambda: launcher.asked >= 3)
        [shown] = (await gateway.report())["engines"]
        assert shown["state"] == ("unreachable" if fault == "silent" else "loading")
        assert "/status is" in shown["waits_for"]
        assert shown["stage"] is None


async def test_launcher_that_is_away_and_returns(engine: FakeEngine, launcher: FakeLauncher) -> None:
    async with before(launcher, **ROOM) as gateway:
        await eventually(lambda: gateway.parts.upstreams.ready)
        await launcher.server.stop()
        [known] = gateway.parts.upstreams.launchers.all
        await eventually(lambda: known.state == "unreachable" and known.fault)
        assert (await gateway.chat()).status_code == 200
        # Started anew, it has no plan yet: its engine went with it.
        await engine.stop()
        launcher.engines, launcher.stage = [], "checking"
        await launcher.server.start()
        await eventually(lambda: not known.engines)
        asked = asyncio.create_task(gateway.chat())
        await eventually(lambda: len(gateway.parts.admission) == 1)
        await engine.start()
        launcher.runs(engine.port)
        assert (await asked).status_code == 200
        await gateway.parts.readiness.look_up()
        await assert_quiescent(gateway, engine)


async def test_last_words_are_not_believed_for_ever(
    engine: FakeEngine, launcher: FakeLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.launchers.BELIEVED_SECONDS", 0.3)
    async with before(launcher, **ROOM) as gateway:
        await eventually(lambda: gateway.parts.upstreams.ready)
        launcher.runs(engine.port, stage="stopping")
        await gateway.becomes("draining")
        asked = asyncio.create_task(gateway.chat())
        await eventually(lambda: len(gateway.parts.admission) == 1)
        await launcher.server.stop()
        # The engine is as sound as ever.
        assert (await asked).status_code == 200
        assert (await gateway.report())["engines"][0]["stage"] is None
        await assert_quiescent(gateway, engine)


async def test_one_of_two_engines_stalls_and_the_other_serves(engine: FakeEngine, launcher: FakeLauncher) -> None:
    async with FakeEngine() as other, before(launcher, GATEWAY_STALL_SECONDS="0.3") as gateway:
        launcher.runs(engine.port, other.port)
        await eventually(lambda: sum(known.takes_requests for known in gateway.parts.upstreams.engines) == 2)
        engine.script = engine.trial_script = hold
        other.script = hold
        caught = [await gateway.raw(PROMPT, COMPLETIONS) for _ in range(2)]
        await engine.next_call()
        await gateway.becomes("stalled")
        assert [known.state for known in gateway.parts.upstreams.engines] == ["stalled", "ready"]
        for client in caught:
            client.close()
        await eventually(lambda: other.running == 0)
        await assert_quiescent(gateway, other)
