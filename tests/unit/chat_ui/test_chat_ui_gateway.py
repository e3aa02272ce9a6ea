"""The page's client against a scripted peer on a real socket."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chat_ui.engine_state import READY
from chat_ui.errors import (
    AnswerCut,
    AnswerTimedOut,
    ChatError,
    ContextTooLong,
    EngineBusy,
    EngineNotReady,
    GatewayUnreachable,
    RateLimited,
    RequestRefused,
    UpstreamFailed,
)
from chat_ui.gateway import Finish, Gateway, Model, Piece, Place, Usage
from chat_ui.gateway_key import GatewayKey

HEADERS = {"x-request-id": "chat-1"}
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def words(text: str) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})


def response(status: int, body: object, **headers: str) -> list[bytes]:
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ["\r\n".join([*lines, "", ""]).encode() + content]


@dataclass
class Peer:
    """Answers every request with the same bytes, then closes, or keeps still until the client leaves."""

    script: list[bytes]
    hang: bool = False
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    client_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                for part in self.script:
                    writer.write(part)
                    await writer.drain()
                if self.hang:
                    await reader.read()
                    self.client_left.set()
                if self.hang or not (b"Content-Length" in self.script[0] or self.script[-1] == END):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.client_left.set()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def talking_to(peer: Peer, idle_timeout_seconds: float = 5, key_file: str = "") -> AsyncIterator[Gateway]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.port = server.sockets[0].getsockname()[1]
    gateway = Gateway(
        f"http://127.0.0.1:{peer.port}",
        GatewayKey(key_file),
        connect_timeout_seconds=2,
        idle_timeout_seconds=idle_timeout_seconds,
    )
    try:
        async with server:
            yield gateway
            await gateway.close()
    finally:
        await gateway.close()


PARAMETERS = {"max_tokens": 5.0, "temperature": 0.3}
Parts = list[Piece | Place | Finish]


async def ask(gateway: Gateway, model: str | None = "m") -> Parts:
    question = [{"role": "user", "content": "q"}]
    return [part async for part in gateway.stream_answer(model, question, PARAMETERS, HEADERS)]


async def collect(gateway: Gateway, pieces: Parts) -> None:
    async for piece in gateway.stream_answer("m", [], PARAMETERS, HEADERS):
        pieces.append(piece)


async def test_answer_survives_bytes_one_by_one_and_a_chunk_of_usage_alone() -> None:
    stream = (
        b": ping\n\n"
        + event({"choices": [{"delta": {"role": "assistant"}}]})
        + words("你好🔥")
        + event({"choices": [{"delta": None, "finish_reason": "length"}]})
        + event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
        + b"data: [DONE]\n\n"
    )
    peer = Peer([OPEN, *(chunk(stream[at : at + 1]) for at in range(len(stream))), END])
    async with talking_to(peer) as gateway:
        assert await ask(gateway) == [Piece("你好🔥"), Finish("length", Usage(7, 2))]
    body = json.loads(peer.requests[0].partition(b"\r\n\r\n")[2])
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "max_tokens": 5,
        "temperature": 0.3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_one_connection_serves_the_next_question() -> None:
    peer = Peer([OPEN, chunk(words("a") + b"data: [DONE]\n\n"), END])
    async with talking_to(peer) as gateway:
        for _ in range(3):
            await ask(gateway)
    assert (len(peer.requests), peer.connections) == (3, 1)


@pytest.mark.parametrize(
    "script",
    [
        [OPEN, chunk(words("part")), END],
        [OPEN, chunk(words("part"))],
        [OPEN, chunk(words("part") + event({"error": {"message": "The engine stopped.", "code": "x"}})), END],
        [OPEN, chunk(words("part") + b"data: {nonsense\n\n"), END],
    ],
    ids=["no end mark", "connection cut", "error event", "unreadable event"],
)
async def test_cut_stream_gives_its_words_then_an_error(script: list[bytes]) -> None:
    pieces: Parts = []
    peer = Peer(script)
    async with talking_to(peer) as gateway:
        with pytest.raises(AnswerCut) as caught:
            await collect(gateway, pieces)
    assert pieces == [Piece("part")]
    assert caught.value.request_id == "chat-1"
    assert len(peer.requests) == 1


async def test_places_in_the_queue_are_told_until_the_first_word() -> None:
    stream = (
        b": waiting place=3 seconds_left=41\n\n: waiting place=2\n\n: waiting\n\n"
        + words("a")
        + b": waiting place=1\n\ndata: [DONE]\n\n"
    )
    async with talking_to(Peer([OPEN, chunk(stream), END])) as gateway:
        assert await ask(gateway, model=None) == [Place(3, 41.0), Place(2, None), Piece("a"), Finish("stop")]


def error_event(code: object, param: str | None = None) -> bytes:
    return event({"error": {"message": "why", "type": "t", "param": param, "code": code}})


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ([chunk(error_event("not_ready")), END], EngineNotReady),
        ([chunk(error_event("shutting_down")), END], EngineNotReady),
        ([chunk(error_event("overloaded")), END], EngineBusy),
        ([chunk(error_event("upstream_timeout")), END], AnswerTimedOut),
        ([chunk(error_event("upstream_broken")), END], UpstreamFailed),
        ([chunk(error_event(404)), END], RequestRefused),
        ([chunk(error_event(400, "input_tokens")), END], ContextTooLong),
        ([END], GatewayUnreachable),
        ([], GatewayUnreachable),
    ],
)
async def test_stream_that_only_waited_and_failed_has_no_answer_to_break_off(
    end: list[bytes], kind: type[ChatError]
) -> None:
    async with talking_to(Peer([OPEN, chunk(b": waiting place=1\n\n"), *end])) as gateway:
        with pytest.raises(kind) as caught:
            await ask(gateway)
    assert type(caught.value) is kind
    assert caught.value.request_id == "chat-1"


def refusal(code: str = "", param: str | None = None) -> dict[str, object]:
    return {"error": {"message": "why", "type": "t", "param": param, "code": code}}


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (response(429, refusal(), retry_after="7", x_request_id="gw-9"), RateLimited),
        (response(503, refusal("not_ready"), retry_after="7", x_request_id="gw-9"), EngineNotReady),
        (response(503, refusal("overloaded"), retry_after="7", x_request_id="gw-9"), EngineBusy),
    ],
)
async def test_refusal_carries_the_wait_and_the_id(script: list[bytes], kind: type[ChatError]) -> None:
    async with talking_to(Peer(script)) as gateway:
        with pytest.raises(kind) as caught:
            await ask(gateway)
    assert type(caught.value) is kind
    assert (caught.value.retry_after_seconds, caught.value.request_id, caught.value.detail) == (7, "gw-9", "why")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (response(400, refusal(param="input_tokens")), ContextTooLong),
        (response(400, refusal("context_length_exceeded")), ContextTooLong),
        (response(400, refusal(param="temperature")), RequestRefused),
        (response(404, refusal()), RequestRefused),
        (response(500, {"detail": "x"}), UpstreamFailed),
        (response(502, "x"), UpstreamFailed),
        (response(504, refusal()), AnswerTimedOut),
        ([b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>"], UpstreamFailed),
    ],
)
async def test_every_status_has_its_error_and_is_asked_once(script: list[bytes], kind: type[ChatError]) -> None:
    peer = Peer(script)
    async with talking_to(peer) as gateway:
        with pytest.raises(kind) as caught:
            await ask(gateway)
    assert type(caught.value) is kind
    assert len(peer.requests) == 1


async def test_silence_ends_in_a_timeout() -> None:
    async with talking_to(Peer([OPEN], hang=True), idle_timeout_seconds=0.1) as gateway:
        with pytest.raises(AnswerTimedOut):
            await ask(gateway)


async def test_refused_connection_is_named_even_with_a_proxy_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Peer(response(200, {"data": [{"id": "m"}]}))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with talking_to(peer) as gateway:
        assert await gateway.models() == (Model("m", None),)
    gone = Gateway(f"http://127.0.0.1:{peer.port}", GatewayKey(""), connect_timeout_seconds=1, idle_timeout_seconds=1)
    with pytest.raises(GatewayUnreachable):
        await ask(gone)
    await gone.close()


async def test_cancelling_closes_the_connection_and_leaves_the_pool_whole() -> None:
    peer = Peer([OPEN, chunk(words("part"))], hang=True)
    async with talking_to(peer) as gateway:
        for _ in range(20):
            peer.client_left.clear()
            started = asyncio.Event()

            async def stream(started: asyncio.Event = started) -> None:
                async with contextlib.aclosing(gateway.stream_answer("m", [], PARAMETERS, HEADERS)) as pieces:
                    async for _ in pieces:
                        started.set()

            task = asyncio.create_task(stream())
            await asyncio.wait_for(started.wait(), 2)
            task.cancel()
            await asyncio.wait_for(peer.client_left.wait(), 1)
            with pytest.raises(asyncio.CancelledError):
                await task
        peer.script, peer.hang = [OPEN, chunk(words("whole") + b"data: [DONE]\n\n"), END], False
        assert await ask(gateway) == [Piece("whole"), Finish("stop")]


async def test_every_call_carries_the_key_of_the_moment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    peer = Peer(response(401, {"error": {"message": "wrong", "type": "t", "param": None, "code": "invalid_api_key"}}))
    async with talking_to(peer, key_file=str(file)) as gateway:
        for key in ("", "k" * 43, "l" * 43):
            file.write_text(f"{key}\n")
            with pytest.raises(RequestRefused):
                await gateway.models(HEADERS)
            with pytest.raises(RequestRefused):
                await ask(gateway)
    sent = [re.findall(rb"(?i)\r\nauthorization: ([^\r]*)", request) for request in peer.requests]
    assert sent == [[], [], *([b"Bearer " + letter * 43] for letter in (b"k", b"k", b"l", b"l"))]


@pytest.mark.parametrize(
    ("script", "count"),
    [
        (response(200, {"count": 42, "max_model_len": 4096}), 42),
        (response(200, {"tokens": []}), None),
        (response(200, "x"), None),
        (response(404, refusal("not_found")), None),
        (response(503, refusal("not_ready")), None),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"], None),
    ],
)
async def test_tokens_are_the_engines_count_or_not_told(script: list[bytes], count: int | None) -> None:
    peer = Peer(script)
    async with talking_to(peer) as gateway:
        assert await gateway.count_tokens("m", [{"role": "user", "content": "q"}], HEADERS) == count
    assert len(peer.requests) == 1


async def test_state_of_the_engine_is_read_whatever_the_status() -> None:
    async with talking_to(Peer(response(200, {"ready": True}))) as gateway:
        assert await gateway.engine_state() is READY
    loading = {"ready": False, "engines": [{"state": "loading"}], **refusal("not_ready")}
    async with talking_to(Peer(response(503, loading))) as gateway:
        assert (await gateway.engine_state()).stage == "loading"
    async with talking_to(Peer([b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>"])) as gateway:
        with pytest.raises(UpstreamFailed):
            await gateway.engine_state()


async def test_models_are_asked_again_only_when_told() -> None:
    peer = Peer(response(200, {"data": [{"id": "a", "max_model_len": 4096}, {"id": "b"}]}))
    async with talking_to(peer) as gateway:
        assert await gateway.models() == (Model("a", 4096), Model("b", None))
        await gateway.models()
        assert len(peer.requests) == 1
        gateway.forget_models()
        await gateway.models()
        assert len(peer.requests) == 2


@pytest.mark.parametrize(
    ("body", "kind"), [({"data": []}, EngineNotReady), ({"models": 1}, UpstreamFailed), ("x", UpstreamFailed)]
)
async def test_unusable_list_of_models_is_an_error(body: object, kind: type[ChatError]) -> None:
    async with talking_to(Peer(response(200, body))) as gateway:
        with pytest.raises(kind):
            await gateway.models()
