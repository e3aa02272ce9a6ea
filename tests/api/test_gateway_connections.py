"""What a connection to the gateway does beyond one request: the next one, several at once, none for long."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from gateway.serving.cycle import Cycle
from gateway.serving.protocol import MOST_WAITING, PIECE_BYTES

from tests.fakes.engine import Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RawClient,
    RunningGateway,
    assert_quiescent,
    error_of,
    eventually,
    running_gateway,
)
from tests.fakes.knots import left_to_the_collector
from tests.fakes.scripts import Script, once

END = b"0\r\n\r\n"
# uvloop's buffer.
MOST_IN_A_READ = 262_144


def post(body: object, *lines: str, version: str = "1.1") -> bytes:
    payload = json.dumps(body).encode()
    head = "\r\n".join(
        (f"POST /v1/chat/completions HTTP/{version}", "host: gateway", f"content-length: {len(payload)}", *lines)
    )
    return head.encode() + b"\r\n\r\n" + payload


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[RawClient]:
    """A connection that nothing was sent on yet."""
    async with connected(gateway) as client:
        yield client


@asynccontextmanager
async def connected(gateway: RunningGateway) -> AsyncIterator[RawClient]:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", gateway.port))
    try:
        yield client
    finally:
        client.writer.transport.abort()


async def answer_of(client: RawClient) -> tuple[str, bytes]:
    """Return status line and headers, and the body by its length."""
    head = await client.head()
    length = next(line for line in head.lower().splitlines() if line.startswith("content-length: "))
    return head, await client.reader.readexactly(int(length.partition(" ")[2]))


@pytest.mark.parametrize("body", [CHAT, STREAMED])
async def test_what_a_request_leaves_behind_is_freed_at_once(client: RawClient, body: dict[str, object]) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            client.writer.write(post(body))
            await (answer_of(client) if body is CHAT else client.reader.readuntil(END))
        cycles = sum(isinstance(thing, Cycle) for thing in gc.get_objects())
    finally:
        gc.enable()
    # A connection keeps its last one.
    assert cycles <= 2


@pytest.mark.parametrize(
    ("sent", "script", "is_answered"),
    [
        (b"", answer, False),
        (post(CHAT), answer, True),
        (post(CHAT)[:-5], answer, False),
        (b"no HTTP\r\n\r\n", answer, True),
        (post(STREAMED), hold, False),
        (post(CHAT) * 3, hold, False),
    ],
    ids=["silent", "answered", "half a request", "refused", "left mid-answer", "left with more sent ahead"],
)
async def test_connection_that_has_ended_is_forgotten_without_the_collector(
    gateway: RunningGateway, engine: FakeEngine, sent: bytes, script: Script, *, is_answered: bool
) -> None:
    engine.script = script
    state = gateway.server.server_state
    with left_to_the_collector() as knots:
        for _ in range(3):
            async with connected(gateway) as client:
                client.writer.write(sent)
                if is_answered:
                    await client.head()
                elif script is hold:
                    await eventually(lambda: len(gateway.parts.in_flight))
                else:
                    await eventually(lambda: state.connections)
            await eventually(lambda: not (state.connections or state.tasks))
    assert knots == []
    await assert_quiescent(gateway, engine)


async def test_an_answer_leaves_in_one_piece(gateway: RunningGateway, client: RawClient) -> None:
    client.writer.write(post(CHAT))
    piece = await client.reader.read(65_536)
    assert piece.startswith(b"HTTP/1.1 200 ")
    assert json.loads(piece.partition(b"\r\n\r\n")[2])["object"] == "chat.completion"


async def test_a_stream_begins_with_head_and_first_event_together(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient
) -> None:
    engine.script = after_events(1, hold)
    client.writer.write(post(STREAMED))
    piece = await client.reader.read(65_536)
    assert piece.startswith(b"HTTP/1.1 200 ")
    assert piece.count(b"data: ") == 1
    client.close()
    await assert_quiescent(gateway, engine)


async def test_requests_sent_at_once_are_answered_in_turn(gateway: RunningGateway, client: RawClient) -> None:
    refused = post({"messages": 1})
    client.writer.write(post(CHAT) + refused + post(STREAMED) + post(CHAT, "connection: close"))
    assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
    assert (await answer_of(client))[0].startswith("HTTP/1.1 400 ")
    assert "transfer-encoding: chunked" in await client.head()
    assert b"data: [DONE]" in await client.reader.readuntil(END)
    head, _ = await answer_of(client)
    assert "connection: close" in head
    assert await client.reader.read() == b""


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset], ids=["fin", "reset"])
async def test_leaving_with_requests_waiting_aborts_the_one_that_runs(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient, leave: object
) -> None:
    engine.script = hold
    client.writer.write(post(STREAMED) + post(CHAT) + post(CHAT))
    call = await engine.next_call()
    leave(client)  # type: ignore[operator]
    await asyncio.wait_for(call.disconnected.wait(), 1)
    await assert_quiescent(gateway, engine)
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected") == 1


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(
    gateway: RunningGateway, client: RawClient
) -> None:
    request = post(CHAT, "expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    client.writer.write(head + b"\r\n\r\n")
    assert await client.head() == "HTTP/1.1 100 Continue\r\n\r\n"
    client.writer.write(body)
    assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")


async def test_head_has_no_body_and_the_connection_goes_on(gateway: RunningGateway, client: RawClient) -> None:
    client.writer.write(b"HEAD /v1/models HTTP/1.1\r\nhost: gateway\r\n\r\n" + post(CHAT))
    assert (await client.head()).startswith("HTTP/1.1 405 ")
    assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize("body", [CHAT, STREAMED], ids=["whole", "streamed"])
async def test_http_1_0_gets_plain_bytes_until_the_connection_ends(
    gateway: RunningGateway, client: RawClient, body: object
) -> None:
    client.writer.write(post(body, version="1.0"))
    head = (await client.head()).lower()
    assert "transfer-encoding" not in head
    assert "connection: close" in head
    answer = await client.reader.read()
    assert answer.endswith(b"data: [DONE]\n\n") if body is STREAMED else json.loads(answer)


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(gateway: RunningGateway) -> None:
    gateway.server.config.timeout_keep_alive = 1
    async with connected(gateway) as idle, connected(gateway) as busy:
        idle.writer.write(post(CHAT))
        await answer_of(idle)
        began_at = time.monotonic()
        ended = asyncio.create_task(idle.reader.read())
        while not ended.done():
            busy.writer.write(post(CHAT))
            assert (await answer_of(busy))[0].startswith("HTTP/1.1 200 ")
        assert await ended == b""
        assert time.monotonic() - began_at >= 0.99
        busy.writer.write(post(CHAT))
        assert (await answer_of(busy))[0].startswith("HTTP/1.1 200 ")


async def test_a_client_that_takes_nothing_is_let_go_at_once(engine: FakeEngine) -> None:
    async def flood(call: Call) -> None:
        call.stream_head()
        event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % (b"x" * 65_536)
        while not call.disconnected.is_set():
            call.chunk(event)
            await asyncio.sleep(0)

    engine.script = flood
    async with running_gateway(engine, GATEWAY_IDLE_TIMEOUT_SECONDS="0.3") as gateway, connected(gateway) as client:
        client.writer.write(post(STREAMED))
        call = await engine.next_call()
        await asyncio.wait_for(call.disconnected.wait(), 5)
        # Nothing is kept for it, though it has not left.
        connections = gateway.server.server_state.connections
        await eventually(lambda: not [one for one in connections if one._answering])
        await assert_quiescent(gateway, engine)


async def test_a_refusal_leaves_the_connection_for_the_next_request(gateway: RunningGateway) -> None:
    first = await gateway.chat({"messages": []})
    assert first.status_code == 400
    assert error_of(first)["code"]
    assert (await gateway.chat()).status_code == 200


async def test_what_is_no_http_is_refused_after_the_answers_that_are_due(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient
) -> None:
    go_on = asyncio.Event()
    engine.script = once(go_on, answer)
    client.writer.write(post(CHAT) + post(CHAT) + b"no http at all\r\n\r\n")
    await engine.next_call()
    go_on.set()
    for _ in range(2):
        assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
    head, body = await answer_of(client)
    assert head.startswith("HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_request"
    assert await client.reader.read() == b""


async def test_a_refusal_is_not_written_into_the_answer_to_a_request_before_the_last(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient
) -> None:
    engine.script = after_events(1, hold)
    client.writer.write(post(STREAMED) + post(CHAT))
    await client.head()
    client.writer.write(b"no http at all\r\n\r\n")
    assert b"HTTP/1.1" not in await asyncio.wait_for(client.reader.read(), 5)
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("leave", [RawClient.close, RawClient.reset], ids=["fin", "reset"])
async def test_leaving_is_seen_after_a_request_came_while_another_runs(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient, leave: object
) -> None:
    engine.script = hold
    client.writer.write(post(CHAT))
    call = await engine.next_call()
    client.writer.write(post(CHAT))
    connection = next(one for one in gateway.server.server_state.connections if one._answering)
    await eventually(lambda: connection._waiting)
    leave(client)  # type: ignore[operator]
    await asyncio.wait_for(call.disconnected.wait(), 1)
    await assert_quiescent(gateway, engine)


async def test_only_so_many_requests_wait_on_a_connection(
    engine: FakeEngine, gateway: RunningGateway, client: RawClient
) -> None:
    go_on = asyncio.Event()
    engine.script = once(go_on, answer)
    client.writer.write(post(CHAT))
    await engine.next_call()
    connection = next(one for one in gateway.server.server_state.connections if one._answering)
    asked = b"GET /livez HTTP/1.1\r\nhost: gateway\r\n\r\n"
    number = 10_000
    sending = asyncio.create_task(send_all(client, asked * number))
    await eventually(lambda: connection._waiting)
    go_on.set()
    assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
    for _ in range(number):
        assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
        assert len(connection._waiting) <= MOST_WAITING + PIECE_BYTES // len(asked)
        assert len(connection._unparsed) <= 2 * MOST_IN_A_READ
    await sending


async def send_all(client: RawClient, data: bytes) -> None:
    client.writer.write(data)
    await client.writer.drain()


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: gate", b"\r\n"],
    ids=["nothing", "half a head", "an empty line"],
)
async def test_who_asks_nothing_is_not_kept(gateway: RunningGateway, sent: bytes) -> None:
    gateway.server.config.timeout_keep_alive = 1
    async with connected(gateway) as client:
        client.writer.write(sent)
        assert await asyncio.wait_for(client.reader.read(), 5) == b""


async def test_the_rest_of_a_refused_body_is_waited_for_no_longer_than_a_request(gateway: RunningGateway) -> None:
    gateway.server.config.timeout_keep_alive = 1
    async with connected(gateway) as client:
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: 999999999\r\n\r\n")
        assert (await answer_of(client))[0].startswith("HTTP/1.1 413 ")
        client.writer.write(b"{")
        assert await asyncio.wait_for(client.reader.read(), 5) == b""


async def test_who_sends_no_more_gets_what_is_no_generation(gateway: RunningGateway, client: RawClient) -> None:
    client.writer.write(b"GET /livez HTTP/1.1\r\nhost: gateway\r\n\r\n" * 2)
    client.writer.write_eof()
    for _ in range(2):
        assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
    assert await client.reader.read() == b""


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_another_protocol_is_not_taken_up_and_the_connection_goes_on(
    gateway: RunningGateway, client: RawClient, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.writer.write(post(CHAT, "connection: upgrade", f"upgrade: {protocol}"))
    assert (await answer_of(client))[0].startswith("HTTP/1.1 200 ")
    client.writer.write(post(CHAT, "connection: upgrade", f"upgrade: {protocol}") + post(CHAT))
    for _ in range(2):
        assert (await asyncio.wait_for(answer_of(client), 5))[0].startswith("HTTP/1.1 200 ")
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_a_place_is_not_kept_for_a_client_that_takes_nothing_of_the_answer_before(engine: FakeEngine) -> None:
    async def be_large(call: Call) -> None:
        if call.streams:
            await after_events(1, hold)(call)
        else:
            call.whole(200, b'{"x":"%b"}' % (b"x" * 32_000_000))

    engine.script = be_large
    async with running_gateway(engine, GATEWAY_IDLE_TIMEOUT_SECONDS="0.3") as gateway, connected(gateway) as client:
        client.writer.write(post(CHAT) + post(STREAMED))
        call = await engine.next_call(2)
        await asyncio.wait_for(call.disconnected.wait(), 5)
        await assert_quiescent(gateway, engine)
