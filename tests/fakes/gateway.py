"""The whole gateway on a real socket, in the test's own loop, and what tests want to know of it."""

import asyncio
import json
import logging
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from gateway.app import Gateway, create_app
from gateway.errors import GatewayError
from gateway.logs import Batch
from gateway.serving import Server, listen, make_server
from gateway.settings import load

from tests.fakes.engine import FakeEngine, answer

CHAT = {"model": "ernie-demo", "messages": [{"role": "user", "content": "你好"}]}
STREAMED = {**CHAT, "stream": True}
# No turn of any conversation: engines of equal work take turns in these.
COMPLETIONS = "/v1/completions"
PROMPT = {"model": "ernie-demo", "prompt": "你好", "stream": True}
# Short enough for a test, long enough for a busy machine.
# Loading the certificates that a default context wants takes longer than starting the gateway.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Tests ask more often, from one address, than any client may.
UNLIMITED = {
    "GATEWAY_RATE_LIMIT_REQUESTS": "off",
    "GATEWAY_RATE_LIMIT_TOKENS": "off",
    "GATEWAY_MAX_STREAMS_PER_CLIENT": "off",
}
FAST = {
    "GATEWAY_PROBE_INTERVAL_SECONDS": "0.05",
    "GATEWAY_DRAIN_SECONDS": "5",
    "GATEWAY_QUEUE_SIZE": "0",
    "GATEWAY_MAX_IN_FLIGHT": "off",
    **UNLIMITED,
}


def request_lines(records: Sequence[logging.LogRecord]) -> list[Mapping[str, Any]]:
    """Return the fields of the requests' lines that were written."""
    return [line for record in records if isinstance(record, Batch) for line in record.lines]


class RunningGateway:
    """A gateway that serves; its parts for looking at, its address for calling."""

    def __init__(self, server: Server, parts: Gateway, port: int, client: httpx.AsyncClient) -> None:
        self.server = server
        self.parts = parts
        self.port = port
        self.client = client
        self.task: asyncio.Task[None] | None = None

    async def chat(self, body: Any = None, **arguments: Any) -> httpx.Response:
        """Post a chat request and read the whole answer."""
        return await self.client.post("/v1/chat/completions", json=CHAT if body is None else body, **arguments)

    async def chat_until(self, seen: bytes, then: asyncio.Event) -> bytes:
        """Stream a chat, set the event when `seen` is the end of what has come, and return the whole stream."""
        received = b""
        async with self.client.stream("POST", "/v1/chat/completions", json=STREAMED) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_raw():
                received += chunk
                if received.endswith(seen):
                    then.set()
        return received

    async def metric(self, name: str, **labels: str) -> float:
        """Return a sample of the metrics page; 0.0 where there is none."""
        page = (await self.client.get("/metrics")).text
        for line in page.splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name and all(f'{key}="{text}"' in series for key, text in labels.items()):
                return float(value)
        return 0.0

    async def report(self) -> Any:
        """Return what `/readyz?verbose` says."""
        return (await self.client.get("/readyz?verbose")).json()

    async def state(self, index: int = 0) -> str:
        """Return the state of an engine."""
        return str((await self.report())["engines"][index]["state"])

    async def becomes(self, state: str, timeout_seconds: float = 5.0) -> None:
        """Wait until the first engine is in a state."""
        await eventually(lambda: self.parts.upstreams.engines[0].state == state, timeout_seconds)

    async def raw(self, body: Any, path: str = "/v1/chat/completions") -> "RawClient":
        """Send a request on a connection of its own, to be cut at will."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (path.encode(), len(payload))
            + payload
        )
        await writer.drain()
        return RawClient(reader, writer)


class RawClient:
    """A client at the level of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> str:
        """Return the answer's status line and headers."""
        return (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")

    def close(self) -> None:
        """Leave in order."""
        self.writer.close()

    def reset(self) -> None:
        """Leave with a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@asynccontextmanager
async def running_gateway(
    *engines: FakeEngine, wait: bool = True, port: int = 0, **settings: str
) -> AsyncIterator[RunningGateway]:
    """Serve a gateway before these engines, wait until all are ready, and stop it in order at the end."""
    upstreams = ",".join(engine.url for engine in engines)
    environment = {"GATEWAY_UPSTREAMS": upstreams, **FAST, **settings}
    app = create_app(load({name: value for name, value in environment.items() if value}))
    parts = app.gateway
    server = make_server(app.serve, parts.drain.advance)
    listener = listen("127.0.0.1", port)
    port = listener.getsockname()[1]
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False, verify=NO_TLS
    ) as client:
        running = RunningGateway(server, parts, port, client)
        running.task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await eventually(lambda: server.started)
            if wait:
                await eventually(lambda: all(known.takes_requests for known in running.parts.upstreams.engines))
            yield running
        finally:
            server.should_exit = True
            await running.task


def first_token(seconds: float) -> dict[str, str]:
    """Return the setting of the longest wait for a first token."""
    return {"GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": str(seconds)}


async def eventually(condition: Callable[[], Any], timeout_seconds: float = 5.0) -> None:
    """Wait until something that sends no event becomes true."""
    ends_at = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > ends_at:
            raise AssertionError(f"did not become true within {timeout_seconds} s")
        await asyncio.sleep(0.005)


async def assert_quiescent(gateway: RunningGateway, *engines: FakeEngine) -> None:
    """Nothing is left of what happened: no request, no lease, no connection held; and the next request succeeds."""
    parts = gateway.parts
    await eventually(lambda: not len(parts.in_flight))
    await eventually(lambda: all(engine.outstanding == 0 for engine in parts.upstreams.engines))
    await eventually(lambda: parts.client.open_connections == 0)
    assert await gateway.metric("gateway_requests_in_flight") == 0
    for engine in engines:
        engine.script = answer
    response = await gateway.chat()
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "你好, world 🔥"


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error in an answer, having checked its shape."""
    body = response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    assert body["error"]["message"]
    assert "127.0.0.1" not in response.text
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error


def check_retry_after(refusal: httpx.Response | GatewayError) -> None:
    """Check that a refusal says when to come back, as the OpenAI SDKs honour it: whole seconds, never 0, at most 60."""
    # A range, since the number depends on when it is asked; the SDKs sleep 0 s at once and ignore more than 60.
    assert 1 <= int(refusal.headers["retry-after"]) <= 60


def events_in(stream: bytes) -> list[bytes]:
    """Return the events of a stream without its comments."""
    blocks = [block + b"\n\n" for block in stream.split(b"\n\n") if block]
    return [block for block in blocks if not block.startswith(b":")]


def last_error(stream: bytes) -> dict[str, Any]:
    """Return the error that ends a broken stream; there must be exactly one, and no [DONE]."""
    events = events_in(stream)
    errors = [block for block in events if block.startswith(b'data: {"error"')]
    assert len(errors) == 1, stream
    assert events[-1] == errors[0], stream
    assert b"[DONE]" not in stream
    error: dict[str, Any] = json.loads(errors[0].removeprefix(b"data: "))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
