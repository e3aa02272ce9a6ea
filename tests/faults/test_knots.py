"""However a request ends, counting frees what it had: its body may be of 2 MiB, and the collector comes seldom."""

import asyncio
import json

import pytest

from tests.fakes.call import Call
from tests.fakes.engine import FakeEngine, answer
from tests.fakes.gateway import CHAT, STREAMED, eventually, running_gateway
from tests.fakes.knots import left_to_the_collector
from tests.fakes.scripts import Script, after_events, flood, hold, midway, reset, saying, writing

REFUSED = {**CHAT, "stop": 1}
ERROR = b'data: {"error": {"message": "no", "type": "x", "param": null, "code": 400}}\n\n'


async def refuse(call: Call) -> None:
    call.whole(400, b'{"error": {"message": "no", "type": "x", "param": null, "code": 400}}')


async def fail(call: Call) -> None:
    call.whole(500, b"Internal Server Error")


async def turn_away(call: Call) -> None:
    call.whole(503, b"")


@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "script",
    [
        answer,
        refuse,
        fail,
        turn_away,
        writing(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        midway(reset),
        midway(Call.fin),
        saying(ERROR),
        after_events(1, hold),
        hold,
    ],
    ids=["sound", "400", "500", "503", "garbage", "reset", "cut", "error event", "silent after one", "silent"],
)
async def test_request_leaves_no_knot(engine: FakeEngine, script: Script, body: dict[str, object]) -> None:
    engine.script = script
    waits = {"GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": "0.2", "GATEWAY_IDLE_TIMEOUT_SECONDS": "0.2"}
    async with running_gateway(engine, GATEWAY_ANSWER_TIMEOUT_SECONDS="0.2", **waits) as gateway:
        with left_to_the_collector() as knots:
            await gateway.chat(body)
            await gateway.chat(body)
        assert knots == []


@pytest.mark.parametrize("body", [b"{", json.dumps(REFUSED).encode(), b"x" * 3_000_000], ids=["cut", "field", "large"])
async def test_refused_request_leaves_no_knot(engine: FakeEngine, body: bytes) -> None:
    async with running_gateway(engine) as gateway:
        with left_to_the_collector() as knots:
            for _ in range(2):
                response = await gateway.client.post("/v1/chat/completions", content=body)
                assert response.is_client_error
        assert knots == []


async def test_limited_request_leaves_no_knot(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_REQUESTS="1/minute") as gateway:
        with left_to_the_collector() as knots:
            assert [(await gateway.chat()).status_code for _ in range(3)] == [200, 429, 429]
        assert knots == []


@pytest.mark.parametrize("waits", [True, False])
async def test_request_that_no_engine_takes_leaves_no_knot(engine: FakeEngine, *, waits: bool) -> None:
    room = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "0.3"} if waits else {}
    async with running_gateway(engine, GATEWAY_PROBE_INTERVAL_SECONDS="60", **room) as gateway:
        await engine.stop()
        with left_to_the_collector() as knots:
            assert [(await gateway.chat()).status_code for _ in range(2)] == [503, 503]
        assert knots == []


async def test_request_that_waits_and_is_served_leaves_no_knot(engine: FakeEngine) -> None:
    engine.health_status = 503
    async with running_gateway(engine, wait=False, GATEWAY_QUEUE_SIZE="9") as gateway:
        with left_to_the_collector() as knots:
            asked = asyncio.create_task(gateway.chat())
            await eventually(lambda: len(gateway.parts.admission))
            engine.health_status = 200
            assert (await asked).status_code == 200
        assert knots == []


@pytest.mark.parametrize("way", ["leaves the queue", "leaves a look", "takes nothing"])
async def test_client_that_leaves_leaves_no_knot(engine: FakeEngine, way: str) -> None:
    settings = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_IDLE_TIMEOUT_SECONDS": "0.2"}
    async with running_gateway(engine, **settings) as gateway:
        if way == "leaves the queue":
            engine.health_status = 503
            await gateway.becomes("loading")
        with left_to_the_collector() as knots:
            engine.script = flood if way == "takes nothing" else turn_away
            engine.health_delay_seconds = 0.5 if way == "leaves a look" else 0.0
            running = gateway.parts.in_flight
            client = await gateway.raw(STREAMED)
            if way == "leaves the queue":
                await eventually(lambda: len(gateway.parts.admission))
            else:
                call = await engine.next_call()
                left = gateway.parts.upstreams.engines[0]
                # Of whom nothing is taken, or whose engine is looked at.
                await (call.disconnected.wait() if way == "takes nothing" else eventually(lambda: not left.outstanding))
            client.reset()
            await eventually(lambda: not len(running))
        assert knots == []


async def test_request_that_is_ended_as_the_gateway_stops_leaves_no_knot(engine: FakeEngine) -> None:
    engine.script = after_events(1, hold)
    async with running_gateway(engine) as gateway:
        with left_to_the_collector() as knots:
            asked = asyncio.create_task(gateway.chat(STREAMED))
            await eventually(lambda: len(gateway.parts.in_flight))
            gateway.parts.in_flight.end_all()
            await asked
        assert knots == []


@pytest.mark.parametrize("way", ["away", "denies", "garbage"])
async def test_looks_at_an_engine_leave_no_knot(engine: FakeEngine, way: str) -> None:
    async with running_gateway(engine) as gateway:
        if way == "away":
            await engine.stop()
        elif way == "denies":
            engine.health_status = 503
        else:
            engine.models = []
        known = gateway.parts.upstreams.engines[0]
        with left_to_the_collector() as knots:
            for _ in range(3):
                await known.next_look(5)
        assert knots == []
