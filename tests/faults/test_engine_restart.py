"""An engine that is away: who comes meanwhile waits, in order and within bounds; nobody is lost in silence."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from gateway.errors import UpstreamUnavailable
from gateway.readiness.starts import FILE_NAME

from tests.fakes.engine import EVENTS, Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    check_retry_after,
    error_of,
    events_in,
    eventually,
    last_error,
    running_gateway,
)

ROOM = {"GATEWAY_QUEUE_SIZE": "100", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20"}


@pytest.fixture
async def away() -> AsyncIterator[FakeEngine]:
    """An engine that is down, and comes up on `start`."""
    async with FakeEngine() as engine:
        await engine.stop()
        yield engine


def waiting(gateway: RunningGateway) -> int:
    return len(gateway.parts.admission)


async def ask_in_order(gateway: RunningGateway, number: int) -> list[asyncio.Task[httpx.Response]]:
    """Send so many requests, each with its number as its seed, one after the other; return the answers to come."""
    asked = []
    for seed in range(number):
        asked.append(asyncio.create_task(gateway.chat({**(STREAMED if seed % 2 else CHAT), "seed": seed})))
        await eventually(lambda seed=seed: waiting(gateway) == seed + 1)
    return asked


async def test_who_comes_while_it_starts_is_served(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM) as gateway:
        asked = await ask_in_order(gateway, 12)
        assert await gateway.metric("gateway_queue_depth") == 12
        await away.start()
        answers = await asyncio.gather(*asked)
        assert [answered.status_code for answered in answers] == [200] * 12
        # Let go in order; which of their connections is accepted first is the system's affair.
        assert sorted(call.json["seed"] for call in away.calls) == list(range(12))
        assert await gateway.metric("gateway_queue_depth") == 0
        assert await gateway.metric("gateway_queue_wait_seconds_count") == 12
        timing = answers[0].headers["server-timing"]
        assert float(timing.partition("queue;dur=")[2].partition(",")[0]) > 0
        await assert_quiescent(gateway, away)


async def test_who_streams_hears_of_the_wait(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        first, second = [await gateway.raw(STREAMED) for _ in range(2)]
        assert "200 OK" in await first.head()
        assert "200 OK" in await second.head()
        assert b": waiting place=1\n\n" in await first.reader.readuntil(b"\n\n")
        assert b": waiting place=2\n\n" in await second.reader.readuntil(b"\n\n")
        await away.start()
        assert EVENTS[-1] in await first.reader.readuntil(b"[DONE]\n\n")
        first.close()
        second.close()
        await assert_quiescent(gateway, away)


async def test_full_room_refuses_and_says_when_to_come_back(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM | {"GATEWAY_QUEUE_SIZE": "2"}) as gateway:
        asked = await ask_in_order(gateway, 2)
        refused = await gateway.chat()
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "not_ready"
        assert "2 requests wait already" in error_of(refused)["message"]
        check_retry_after(refused)
        await away.start()
        assert [answered.status_code for answered in await asyncio.gather(*asked)] == [200, 200]
        await assert_quiescent(gateway, away)


async def test_wait_that_is_too_long_ends_honestly(away: FakeEngine) -> None:
    room = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "0.3"}
    async with running_gateway(away, wait=False, **room, GATEWAY_HEARTBEAT_SECONDS="0.1") as gateway:
        streamed, whole = await asyncio.gather(gateway.chat(STREAMED), gateway.chat())
        assert whole.status_code == 503
        assert error_of(whole)["code"] == "not_ready"
        check_retry_after(whole)
        # The comments have taken status 200; the error comes as the one event.
        assert last_error(streamed.content)["code"] == "not_ready"
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="not_ready") == 2
        assert waiting(gateway) == 0
        await away.start()
        await gateway.becomes("ready")
        await assert_quiescent(gateway, away)


async def test_who_leaves_the_room_frees_the_place(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM) as gateway:
        clients = [await gateway.raw(body) for body in (STREAMED, CHAT, STREAMED)]
        await eventually(lambda: waiting(gateway) == 3)
        clients[0].close()
        clients[1].reset()
        await eventually(lambda: waiting(gateway) == 1)
        await eventually(lambda: len(gateway.parts.in_flight) == 1)
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected") == 2
        await away.start()
        await clients[2].reader.readuntil(b"[DONE]\n\n")
        assert len(away.calls) == 1
        clients[2].close()
        await assert_quiescent(gateway, away)


async def test_stopping_empties_the_room_at_once(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM) as gateway:
        asked = await ask_in_order(gateway, 4)
        gateway.server.handle_exit(signal.SIGTERM, None)
        for refused in await asyncio.gather(*asked):
            assert refused.status_code == 503
            assert error_of(refused)["code"] == "shutting_down"
            assert refused.headers["retry-after"]
        assert gateway.task is not None
        await asyncio.wait_for(gateway.task, 5)


async def test_who_meets_a_refused_connection_waits_too(engine: FakeEngine) -> None:
    async with running_gateway(engine, **ROOM, GATEWAY_PROBE_INTERVAL_SECONDS="0.2") as gateway:
        await engine.stop()
        asked = [asyncio.create_task(gateway.chat({**CHAT, "seed": seed})) for seed in range(5)]
        await eventually(lambda: waiting(gateway) == 5)
        await gateway.becomes("unreachable")
        await engine.start()
        assert [answered.status_code for answered in await asyncio.gather(*asked)] == [200] * 5
        await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("stream", [True, False])
async def test_who_is_turned_away_by_an_engine_that_stops_waits_for_the_next(
    engine: FakeEngine, *, stream: bool
) -> None:
    async def draining(call: Call) -> None:
        engine.health_status = 503
        call.whole(503, b'{"error":{"message":"stopping","type":"x","param":null,"code":503}}', {"retry-after": "10"})

    async with running_gateway(engine, **ROOM, GATEWAY_PROBE_INTERVAL_SECONDS="60") as gateway:
        engine.script = draining
        turned_away = asyncio.create_task(gateway.chat(STREAMED if stream else CHAT))
        await eventually(lambda: waiting(gateway) == 1)
        await gateway.becomes("loading")
        engine.script = answer
        engine.health_status = 200
        gateway.parts.upstreams.engines[0].attention.set()
        assert (await turned_away).status_code == 200
        assert len(engine.calls) == 2
        await assert_quiescent(gateway, engine)


async def test_who_is_turned_away_by_a_full_engine_is_told_so(engine: FakeEngine) -> None:
    async def full(call: Call) -> None:
        call.whole(503, b'{"error":{"message":"full","type":"x","param":null,"code":503}}', {"retry-after": "10"})

    async with running_gateway(engine, **ROOM) as gateway:
        engine.script = full
        refused = await gateway.chat()
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "overloaded"
        assert refused.headers["retry-after"] == "10"
        assert len(engine.calls) == 1
        await assert_quiescent(gateway, engine)


async def test_who_comes_while_it_hangs_is_served_when_it_is_back(engine: FakeEngine) -> None:
    async with running_gateway(engine, **ROOM, GATEWAY_STALL_SECONDS="0.4") as gateway:
        engine.script = engine.trial_script = hold
        caught = await gateway.raw(STREAMED)
        await gateway.becomes("stalled")
        late = asyncio.create_task(gateway.chat())
        await eventually(lambda: waiting(gateway) == 1)
        engine.script = engine.trial_script = answer
        assert (await late).status_code == 200
        caught.close()
        await assert_quiescent(gateway, engine)


async def test_crash_under_20_open_and_50_arriving_loses_none_silently(engine: FakeEngine) -> None:
    engine.script = after_events(2, hold)
    async with running_gateway(engine, **ROOM) as gateway:
        bodies = [STREAMED if number % 2 else {**CHAT, "seed": number} for number in range(70)]
        opened = [asyncio.create_task(gateway.chat(body)) for body in bodies[:20]]
        await engine.next_call(20)
        await engine.stop()
        arriving = [asyncio.create_task(gateway.chat(body)) for body in bodies[20:]]
        # The 20 end on their own: their answers were cut, and nothing is ever generated twice.
        for number, cut in enumerate(await asyncio.gather(*opened)):
            if number % 2 and cut.status_code == 200:
                assert last_error(cut.content)["code"] in {"upstream_broken", "upstream_truncated"}
            else:
                assert cut.status_code in {502, 503}
                assert error_of(cut)["message"]
        await eventually(lambda: waiting(gateway) == 50)
        engine.script = answer
        engine.calls.clear()
        await engine.start()
        answers = await asyncio.gather(*arriving)
        assert [answered.status_code for answered in answers] == [200] * 50
        assert all(events_in(answered.content)[:-1] == EVENTS for answered in answers[1::2])
        assert len(engine.calls) == 50
        counted = [
            await gateway.metric("gateway_requests_total", route="chat_completions", outcome=outcome)
            for outcome in ("ok", "truncated", "upstream_error", "not_ready")
        ]
        assert sum(counted) == 70
        assert counted[0] == 50
        await assert_quiescent(gateway, engine)


def starts_known(folder: Path) -> list[float]:
    """Return the starts in the file, oldest first."""
    [starts] = json.loads((folder / FILE_NAME).read_text())["starts"].values()
    return list(starts)


async def test_start_is_timed_told_and_remembered(away: FakeEngine, tmp_path: Path) -> None:
    known = {"version": 1, "starts": {f"127.0.0.1:{away.port}": [40.0, 50.0]}}
    (tmp_path / FILE_NAME).write_text(json.dumps(known))
    async with running_gateway(away, wait=False, GATEWAY_STATE_DIR=str(tmp_path), **ROOM) as gateway:
        await eventually(lambda: gateway.parts.upstreams.engines[0].start is not None)
        report = await gateway.report()
        assert 30 < report["seconds_left"] <= 45
        assert report["engines"][0]["start"]["usual_seconds"] == 45
        # A refusal tells the same.
        assert 30 < int((await gateway.client.get("/readyz")).headers["retry-after"]) <= 45
        away.started_at = time.time()
        await away.start()
        await gateway.becomes("ready")
        assert (await gateway.report())["engines"][0]["start"] is None
    *before, learned = starts_known(tmp_path)
    assert before == [40, 50]
    assert 0 < learned < 10


async def test_engine_that_was_only_out_of_reach_has_not_started(away: FakeEngine, tmp_path: Path) -> None:
    away.started_at = time.time() - 3 * 3600
    async with running_gateway(away, wait=False, GATEWAY_STATE_DIR=str(tmp_path), **ROOM) as gateway:
        await gateway.becomes("unreachable")
        await eventually(lambda: gateway.parts.upstreams.engines[0].start is not None)
        await away.start()
        await gateway.becomes("ready")
    assert not (tmp_path / FILE_NAME).exists()


async def test_time_of_stopping_is_no_part_of_a_start(engine: FakeEngine) -> None:
    async with running_gateway(engine, **ROOM) as gateway:
        engine.health_status = 503
        await gateway.becomes("loading")
        known = gateway.parts.upstreams.engines[0]
        await eventually(lambda: known.start is not None)
        draining = known.start
        await engine.stop()
        await gateway.becomes("unreachable")
        assert known.start is not draining
        engine.health_status = 200
        await engine.start()
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def test_folder_that_hangs_does_not_blind_the_gateway(
    away: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr("gateway.readiness.starts._replace", lambda *_: released.wait(10))
    async with running_gateway(away, wait=False, GATEWAY_STATE_DIR=str(tmp_path), **ROOM) as gateway:
        await eventually(lambda: gateway.parts.upstreams.engines[0].start is not None)
        away.started_at = time.time()
        await away.start()
        await gateway.becomes("ready")
        away.health_status = 503
        await gateway.becomes("loading")
        released.set()


async def test_refusal_after_a_comment_is_one_event_and_counted_as_what_it_is(away: FakeEngine) -> None:
    async def refuse(call: Call) -> None:
        body = json.dumps({"error": {"message": "no", "type": "x", "param": None, "code": 400}}, indent=2)
        call.whole(400, body.encode())

    away.script = refuse
    async with running_gateway(away, wait=False, **ROOM, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        client = await gateway.raw(STREAMED)
        await client.reader.readuntil(b": waiting place=1\n\n")
        await away.start()
        event = await client.reader.readuntil(b"\n\n")
        while event.startswith(b":") or b": waiting" in event:
            event = await client.reader.readuntil(b"\n\n")
        assert json.loads(event.partition(b"data: ")[2])["error"]["message"] == "no"
        await eventually(lambda: not len(gateway.parts.in_flight))
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="client_error") == 1
        client.close()
        await assert_quiescent(gateway, away)


async def test_time_of_waiting_is_told_as_such(away: FakeEngine) -> None:
    async with running_gateway(away, wait=False, **ROOM, GATEWAY_HEARTBEAT_SECONDS="0.2") as gateway:
        client = await gateway.raw(STREAMED)
        head = await client.head()
        queue, gateway_time = (float(head.partition(f"{part};dur=")[2].split(",")[0]) for part in ("queue", "gateway"))
        assert queue > 150
        assert gateway_time < 150
        client.close()
        await away.start()
        await gateway.becomes("ready")
        await assert_quiescent(gateway, away)


@pytest.mark.parametrize(
    ("refused_after_seconds", "waits_seconds"), [(0.02, "0.5"), (0.1, "0.05")], ids=["again and again", "too late"]
)
async def test_engines_that_look_sound_and_take_no_connection_hold_nobody_for_ever(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, refused_after_seconds: float, waits_seconds: str
) -> None:
    """Nor are they full, whatever the other one looks like at the moment in which the time is over."""
    room = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": waits_seconds}
    async with FakeEngine() as other, running_gateway(engine, other, **room) as gateway:

        async def refuse(*_: object) -> None:
            await asyncio.sleep(refused_after_seconds)
            raise UpstreamUnavailable("refused")

        monkeypatch.setattr(gateway.parts.client, "post", refuse)
        refused = await asyncio.wait_for(gateway.chat(), 5)
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "not_ready"
        check_retry_after(refused)
        monkeypatch.undo()
        await eventually(lambda: gateway.parts.upstreams.ready)
        await assert_quiescent(gateway, engine, other)


async def test_engine_that_only_denied_its_health_has_not_started(engine: FakeEngine) -> None:
    engine.started_at = time.time() - 40
    async with running_gateway(engine) as gateway:
        engine.health_status = 503
        await gateway.becomes("loading")
        engine.health_status = 200
        await gateway.becomes("ready")
        await engine.stop()
        await gateway.becomes("unreachable")
        assert (await gateway.report())["engines"][0]["start"]["usual_seconds"] is None
