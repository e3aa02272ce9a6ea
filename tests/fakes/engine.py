"""A scriptable vLLM on a real socket: it does exactly what a test says, down to the byte and the FIN.

Health, models, metrics and the gateway's own trial generations are answered from attributes; every other request
runs the script of the moment and is kept in `calls`.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Self

TRIAL_PREFIX = "trial-"


class Call:
    """One request that the engine got, and the means to answer it."""

    def __init__(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes, transport: Any) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.disconnected = asyncio.Event()
        self._transport = transport
        self._chunked = False

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """Return the first header of that name."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def write(self, data: bytes) -> None:
        """Write raw bytes, whatever they are."""
        self._transport.write(data)

    def head(self, status: int = 200, headers: dict[str, str] | None = None, *, chunked: bool = True) -> None:
        """Write a status line and headers; the body follows in chunks unless told otherwise."""
        lines = [f"HTTP/1.1 {status} Scripted"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if chunked:
            lines.append("transfer-encoding: chunked")
        self._chunked = chunked
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def chunk(self, data: bytes) -> None:
        """Write one chunk of the body."""
        self.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def stream_head(self) -> None:
        """Begin a stream as vLLM does."""
        self.head(headers={"content-type": "text/event-stream; charset=utf-8"})

    def end(self) -> None:
        """End a chunked body as it should be."""
        self.write(b"0\r\n\r\n")

    def whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Write a complete answer with its length."""
        self.head(
            status,
            {"content-type": "application/json", **(headers or {}), "content-length": str(len(body))},
            chunked=False,
        )
        self.write(body)

    def fin(self) -> None:
        """Close in order, wherever in the answer that is."""
        self._transport.close()

    def reset(self) -> None:
        """Close with a reset."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


Script = Callable[[Call], Awaitable[None]]


class FakeEngine:
    """The engine; an asynchronous context manager that listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.script: Script = answer
        self.trial_script: Script = answer
        self.calls: list[Call] = []
        self.trials: list[Call] = []
        self.called = asyncio.Condition()
        self.health_status = 200
        self.health_delay_seconds = 0.0
        self.models: list[dict[str, Any]] = [
            {"id": "ernie-demo", "object": "model", "owned_by": "vllm", "root": "/models/demo", "max_model_len": 2048}
        ]
        self.running = 0.0
        self.waiting = 0.0
        self.generated_tokens = 0.0
        self.started_at = 1.0
        # As vLLM counts: what it is working on. None: count the calls that have not ended.
        self.fixed_running: float | None = None
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._transports: set[Any] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if it was started once."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._server is None:
            return
        self._server.close()
        for transport in list(self._transports):
            transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def next_call(self, number: int = 1, timeout_seconds: float = 5.0) -> Call:
        """Wait for the call of that number, counted from 1, and return it."""
        async with asyncio.timeout(timeout_seconds), self.called:
            await self.called.wait_for(lambda: len(self.calls) >= number)
        return self.calls[number - 1]

    async def handle(self, call: Call) -> None:
        """Answer one request."""
        if call.path == "/health":
            await asyncio.sleep(self.health_delay_seconds)
            call.whole(self.health_status, b"")
        elif call.path == "/v1/models":
            call.whole(200, json.dumps({"object": "list", "data": self.models}).encode())
        elif call.path == "/metrics":
            call.whole(200, self._metrics())
        elif (call.header("x-request-id") or "").startswith(TRIAL_PREFIX):
            self.trials.append(call)
            await self.trial_script(call)
        else:
            self.calls.append(call)
            async with self.called:
                self.called.notify_all()
            await self._run_script(call)

    async def _run_script(self, call: Call) -> None:
        self.running += 1
        try:
            await self.script(call)
        finally:
            self.running -= 1

    def _metrics(self) -> bytes:
        running = self.running if self.fixed_running is None else self.fixed_running
        labels = '{model_name="ernie-demo",engine="0"}'
        return (
            f"# HELP vllm:num_requests_running Running.\nvllm:num_requests_running{labels} {running}\n"
            f"vllm:num_requests_waiting{labels} {self.waiting}\n"
            f"vllm:generation_tokens_total{labels} {self.generated_tokens}\n"
            f"process_start_time_seconds {self.started_at}\n"
        ).encode()


class _Connection(asyncio.Protocol):
    """Parses requests one after the other and notices when the peer goes away."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self._buffer = b""
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._engine.connections += 1
        self._engine._transports.add(transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._engine._transports.discard(self._transport)
        if self._call is not None:
            self._call.disconnected.set()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(next((value for name, value in headers if name.lower() == "content-length"), "0"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = first.split(" ")
        self._call = Call(method, path, headers, rest[:length], self._transport)
        self._task = asyncio.get_running_loop().create_task(self._serve(self._call))
        self._engine._tasks.add(self._task)
        self._task.add_done_callback(self._engine._tasks.discard)

    async def _serve(self, call: Call) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._engine.handle(call)


def event(content: str | None = None, **choice: Any) -> bytes:
    """Return a chat completion chunk as vLLM writes it."""
    delta = {} if content is None else {"content": content}
    data = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "ernie-demo",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None} | choice],
    }
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def usage_event(prompt: int, completion: int) -> bytes:
    """Return the chunk that vLLM sends for `include_usage`."""
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "ernie-demo"}
    return b"data: " + json.dumps(data | {"choices": [], "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
TEXT = ("你好", ", ", "world ", "🔥")
EVENTS = [*(event(text) for text in TEXT), event(finish_reason="stop")]


def completion(text: str = "".join(TEXT)) -> bytes:
    """Return an answer that is not streamed."""
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "ernie-demo",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5},
        },
        ensure_ascii=False,
    ).encode()


async def answer(call: Call) -> None:
    """Answer as a sound engine does, streamed or not."""
    request = call.json
    if not request.get("stream"):
        call.whole(200, completion())
        return
    call.stream_head()
    for part in EVENTS:
        call.chunk(part)
    if (request.get("stream_options") or {}).get("include_usage"):
        call.chunk(usage_event(7, 5))
    call.chunk(DONE)
    call.end()


async def hold(call: Call) -> None:
    """Accept and say nothing until the peer leaves."""
    await call.disconnected.wait()


def after_events(number: int, then: Callable[[Call], Awaitable[None] | None]) -> Script:
    """Return a script that streams so many events and then does something else."""

    async def script(call: Call) -> None:
        call.stream_head()
        for index in range(number):
            call.chunk(EVENTS[index % (len(EVENTS) - 1)])
        result = then(call)
        if result is not None:
            await result

    return script
