"""What the gateway refuses itself: quickly, by name, in one shape, without a word to the engine."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from gateway.errors import GatewayError

from tests.fakes.engine import EVENTS, FakeEngine, after_events, hold
from tests.fakes.gateway import CHAT, STREAMED, RunningGateway, assert_quiescent, error_of, eventually, running_gateway

DEEP = b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
STOPS = json.dumps({**CHAT, "stop": ["a"] * 500_000}).encode()
LONE = b'{"messages":[{"role":"user","content":"\\ud83d"}]}'

BAD_BODIES = {
    "no JSON": (b"hello", None),
    "nothing": (b"", None),
    "a list": (b"[1]", None),
    "10,000 deep": (DEEP, None),
    "NaN": (b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}', None),
    "1e309": (b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1e309}', None),
    "lone surrogate in content": (LONE, None),
    "lone surrogate in role": (LONE.replace(b"user", b"\\ud83d"), None),
    "lone surrogate in a name": (LONE.replace(b'"messages"', b'"\\ud83d":1,"messages"'), None),
    "lone surrogate in stop": (b'{"stop":"\\udc00","messages":[]}', None),
    "lone surrogate in model": (b'{"model":"\\udc00","messages":[]}', None),
    "broken UTF-8": (b'{"model":"\xff"}', None),
    "60,000 messages": (b'{"messages":[' + b",".join([b"{}"] * 60_000) + b"]}", "messages"),
    "many fields": (b"{" + b",".join(b'"%d":null' % n for n in range(100_000)) + b"}", "messages"),
    "all brackets": (b'{"x":[' + b"[]," * 690_000 + b"[]]}", None),
}


@pytest.mark.parametrize(("body", "param"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_bad_bodies_are_400(engine: FakeEngine, gateway: RunningGateway, body: bytes, param: str | None) -> None:
    response = await gateway.client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
    assert engine.calls == []


@pytest.mark.parametrize("declared", [True, False])
async def test_too_large_is_413_while_reading(engine: FakeEngine, gateway: RunningGateway, *, declared: bool) -> None:
    async def pieces() -> Any:
        for _ in range(60):
            yield b"x" * 65_536

    body: Any = b"x" * 3_000_000 if declared else pieces()
    response = await gateway.client.post("/v1/chat/completions", content=body)
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"
    assert engine.calls == []
    await assert_quiescent(gateway, engine)


async def test_half_a_million_stops_are_refused(gateway: RunningGateway) -> None:
    response = await gateway.client.post("/v1/chat/completions", content=STOPS)
    assert response.status_code == 413
    async with FakeEngine() as engine, running_gateway(engine, GATEWAY_MAX_BODY_BYTES="8000000") as larger:
        response = await larger.client.post("/v1/chat/completions", content=STOPS)
        assert response.status_code == 400
        assert "strings" in error_of(response)["message"]
        fewer = json.dumps({**CHAT, "stop": ["a"] * 100_000}).encode()
        assert error_of(await larger.client.post("/v1/chat/completions", content=fewer))["param"] == "stop"


async def test_a_large_honest_body_passes(engine: FakeEngine, gateway: RunningGateway) -> None:
    body = {"messages": [{"role": "user", "content": "字" * 400_000}], "stream": True}
    response = await gateway.chat(body)
    assert response.status_code == 200
    assert engine.calls[0].json["messages"] == body["messages"]


async def test_compressed_body_is_415(gateway: RunningGateway) -> None:
    response = await gateway.client.post(
        "/v1/chat/completions", content=b"\x1f\x8b", headers={"content-encoding": "gzip"}
    )
    assert response.status_code == 415
    assert error_of(response)["param"] == "content-encoding"


async def test_body_that_does_not_come_is_408(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.routes.bodies.BODY_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 2)
    writer.close()


async def test_client_that_leaves_while_sending_is_counted_once(gateway: RunningGateway) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()
    await eventually(lambda: gateway.parts.metrics.in_flight.total() == 1)
    writer.close()
    await eventually(lambda: gateway.parts.metrics.in_flight.total() == 0)
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="disconnected") == 1


NOT_SERVED = ["/", "/docs", "/redoc", "/openapi.json", "/health", "/version", "/invocations", "/load",
              "/v1/embeddings", "/v1/models/", "/v1/models/x", "/v1/chat/completions/", "/v1/chat//completions",
              "//v1/models", "/v1/responses", "/v1/audio/transcriptions", "/pooling", "/%2e%2e/metrics"]  # fmt: skip


@pytest.mark.parametrize("path", NOT_SERVED)
async def test_other_paths_are_404(engine: FakeEngine, gateway: RunningGateway, path: str) -> None:
    for method in ("GET", "POST"):
        response = await gateway.client.request(method, f"http://127.0.0.1:{gateway.port}{path}")
        assert response.status_code == 404
        assert error_of(response)["code"] == "not_found"
    assert engine.calls == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/completions", "POST"), ("POST", "/v1/models", "GET"),
     ("DELETE", "/metrics", "GET"), ("POST", "/readyz", "GET"), ("PROPFIND", "/livez", "GET")],
)  # fmt: skip
async def test_other_methods_are_405(gateway: RunningGateway, method: str, path: str, allowed: str) -> None:
    response = await gateway.client.request(method, path)
    assert response.status_code == 405
    assert error_of(response)["code"] == "method_not_allowed"
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize("nonsense", [b"\x16\x03\x01 nonsense", b"FOO /livez HTTP/1.1", b"GET / HTTP/1.1\r\na b: c"])
async def test_what_is_no_http_gets_the_shape_too(gateway: RunningGateway, nonsense: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(nonsense + b"\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 2)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request"
    writer.close()


@pytest.mark.parametrize("head", [b"x" * 65_536, b"x: y\r\n" * 10_922], ids=["one line", "many"])
async def test_endless_head_is_431_and_closed(gateway: RunningGateway, engine: FakeEngine, head: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /livez HTTP/1.1\r\nx: y\r\n" + (b"z: " if head.startswith(b"xx") else b""))

    async def go_on() -> None:
        for _ in range(100):
            writer.write(head)
            await writer.drain()

    sending = asyncio.create_task(go_on())
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "head_too_large"
    await asyncio.gather(sending, return_exceptions=True)
    writer.transport.abort()
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize("length", [b"0" * 5_000 + b"2", b"9" * 5_000], ids=["zeros", "nines"])
async def test_length_of_thousands_of_digits_is_no_fault_of_ours(gateway: RunningGateway, length: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %b\r\n\r\n{}" % length)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
    assert answer.split()[1] in {b"400", b"413"}
    writer.close()


@pytest.mark.parametrize(
    "rest",
    [b"transfer-encoding: chunked\r\n\r\nzz\r\n{}", b'content-length: 2\r\n\r\n{}{"more": "than was announced"}'],
    ids=["bad chunk", "more than announced"],
)
async def test_broken_body_behind_a_sound_head_is_answered(
    gateway: RunningGateway, engine: FakeEngine, rest: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\n" + rest)
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await eventually(lambda: not len(gateway.parts.in_flight))
    await assert_quiescent(gateway, engine)


async def test_many_small_requests_in_one_read_are_all_answered(gateway: RunningGateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    number = 3_000
    writer.write(b"GET /livez HTTP/1.1\r\nhost: gateway\r\n\r\n" * number)
    for _ in range(number):
        assert (await asyncio.wait_for(reader.readuntil(b"alive\n"), 5)).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_one_header_beyond_the_limit_is_431(gateway: RunningGateway) -> None:
    refused = await gateway.client.get("/livez", headers={"cookie": "x" * 70_000})
    assert refused.status_code == 431
    assert error_of(refused)["code"] == "head_too_large"


async def test_endless_trailers_are_cut(gateway: RunningGateway, engine: FakeEngine) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")

    async def go_on() -> None:
        for _ in range(2_000):
            writer.write(b"x: y\r\n" * 1_000)
            await writer.drain()

    sending = asyncio.create_task(go_on())
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 5)
    await asyncio.gather(sending, return_exceptions=True)
    assert sending.exception() is not None, "the gateway has read them all"
    writer.transport.abort()
    await eventually(lambda: not len(gateway.parts.in_flight))
    await assert_quiescent(gateway, engine)


async def test_nothing_is_written_into_a_running_answer(gateway: RunningGateway, engine: FakeEngine) -> None:
    engine.script = after_events(2, hold)
    client = await gateway.raw(STREAMED)
    await client.reader.readuntil(EVENTS[1])
    client.writer.write(b"GET /livez HTTP/1.1\r\nx: " + b"y" * 200_000)
    rest = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await asyncio.wait_for(client.reader.read(65_536), 5):
            rest += piece
    assert b"HTTP/1.1" not in rest
    client.close()
    await assert_quiescent(gateway, engine)


async def test_long_head_within_the_limit_passes(gateway: RunningGateway) -> None:
    answers = [await gateway.client.get("/livez", headers={"cookie": "x" * 30_000}) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5


async def test_fault_of_our_own_is_500_with_its_id_and_a_logged_traceback(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("gateway.policy.Policy.check", explode)
    response = await gateway.chat()
    assert response.status_code == 500
    error = error_of(response)
    assert response.headers["x-request-id"] in error["message"]
    assert "secret" not in response.text
    record = next(record for record in caplog.records if record.name == "gateway.edge")
    assert record.exc_info
    assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome="internal_error") == 1
    monkeypatch.undo()
    await eventually(lambda: not len(gateway.parts.in_flight))


@pytest.mark.parametrize("part", ["take", "is_plain"])
async def test_fault_of_our_own_mid_stream_is_one_error_event(
    engine: FakeEngine, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("secret detail")

    async def script(call: Any) -> None:
        call.stream_head()
        call.chunk(b"data: {}\n\n")
        await gateway.metric("gateway_ready")
        monkeypatch.setattr(f"gateway.usage.StreamMeter.{part}", explode)
        call.chunk(b'data: {"usage": 0}\n\n')
        await hold(call)

    engine.script = script
    response = await gateway.chat({**CHAT, "stream": True})
    assert response.status_code == 200
    assert response.content.startswith(b'data: {}\n\ndata: {"error"')
    assert b"secret" not in response.content
    monkeypatch.undo()
    await assert_quiescent(gateway, engine)


def test_every_error_has_the_shape() -> None:
    def walk(kind: type[GatewayError]) -> list[type[GatewayError]]:
        return [kind, *(inner for child in kind.__subclasses__() for inner in walk(child))]

    kinds = walk(GatewayError)
    assert len(kinds) > 18
    for kind in kinds:
        assert 400 <= kind.status < 600
        assert kind.type in {"invalid_request_error", "rate_limit_error", "server_error"}
        assert kind.code == kind.code.lower()
        assert kind.__doc__
