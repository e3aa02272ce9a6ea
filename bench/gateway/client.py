"""The load: raw HTTP/1.1 connections that hold each event's stamp against the clock at its receipt."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from bench.gateway.engine import MODEL
from bench.gateway.scenarios import Scenario

_STAMP = re.compile(rb'"content":"(\d{20})"')
_BODY_END = b"\r\n0\r\n\r\n"
# All clients are at work for this share of the window's length before it opens.
SETTLING_SHARE = 0.1
# What is still on its way when a window closes has to come within this time.
TAIL_SECONDS = 20.0


class LoadError(Exception):
    """An answer was not what the engine sent: the figures of this run would mean nothing."""


@dataclass(slots=True)
class Samples:
    """What one window brought, in nanoseconds; the first event of a stream counts as first token only.

    `clocks_ns` is what the processes' clocks advanced by meanwhile.
    """

    is_open: bool = False
    forward_ns: list[int] = field(default_factory=list)
    first_token_ns: list[int] = field(default_factory=list)
    answer_ns: list[int] = field(default_factory=list)
    seconds: float = 0.0
    clocks_ns: dict[str, int] = field(default_factory=dict)


class Client(asyncio.Protocol):
    """One connection, which asks again and again until it is stopped."""

    def __init__(self, request: bytes, scenario: Scenario, samples: Samples) -> None:
        self._request = request
        self._streamed = scenario.streamed
        self._events = scenario.events
        self._samples = samples
        self._received = b""
        self._seen = 0
        self._sent_ns = 0
        self._counts = False
        self.stopping = False
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Wait for `ask`."""
        self._transport: asyncio.Transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if an answer was still due."""
        self._fail(f"the connection was lost: {exc}")

    def ask(self) -> None:
        """Send the next request."""
        self._seen = 0
        self._counts = self._samples.is_open
        self._sent_ns = time.monotonic_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take the stamps in what has come, and ask again at the answer's end."""
        now = time.monotonic_ns()
        data = self._received + data
        for stamp in _STAMP.findall(data):
            self._take(now, int(stamp))
        if self._streamed:
            ended = data.endswith(_BODY_END)
            self._received = data[data.rfind(b"\n\n") + 2 :]
        else:
            ended = bool(self._seen)
            self._received = b"" if ended else data
        if ended:
            self._end(now)

    def _take(self, now: int, stamp: int) -> None:
        self._seen += 1
        if self._seen > 1:
            if self._samples.is_open:
                self._samples.forward_ns.append(now - stamp)
        elif self._counts:
            self._samples.first_token_ns.append(now - self._sent_ns)

    def _end(self, now: int) -> None:
        if self._seen != self._events:
            self._fail(f"{self._seen} events came of {self._events}; the answer ended in {self._received!r}")
            return
        self._received = b""
        if self._samples.is_open:
            self._samples.answer_ns.append(now - self._sent_ns)
        if not self.stopping:
            self.ask()
        elif not self.stopped.done():
            self.stopped.set_result(None)

    def _fail(self, reason: str) -> None:
        if not self.stopped.done():
            self.stopped.set_exception(LoadError(reason))

    def close(self) -> None:
        """Leave."""
        self.stopped.cancel()
        self._transport.close()


async def measure(port: int, scenario: Scenario, seconds: float, clock: Callable[[], dict[str, int]]) -> Samples:
    """Load one path and return what a window of `seconds` brought while every client was at work.

    `clock` reads the processes' clocks. Raises LoadError if an answer is cut, or longer or shorter than asked for.
    """
    loop = asyncio.get_running_loop()
    samples = Samples()
    request = _request(port, scenario)
    clients = [
        (await loop.create_connection(lambda: Client(request, scenario, samples), "127.0.0.1", port))[1]
        for _ in range(scenario.clients)
    ]
    try:
        # Starts are spread over one answer's length, so that streams are at every stage at any time.
        for index, client in enumerate(clients):
            loop.call_later(scenario.answer_seconds * index / len(clients), client.ask)
        await asyncio.sleep(scenario.answer_seconds * (1 - 1 / len(clients)) + seconds * SETTLING_SHARE)
        await _hold_window(samples, seconds, clock)
        for client in clients:
            client.stopping = True
        async with asyncio.timeout(TAIL_SECONDS):
            await asyncio.gather(*(client.stopped for client in clients))
    finally:
        for client in clients:
            client.close()
    return samples


async def _hold_window(samples: Samples, seconds: float, clock: Callable[[], dict[str, int]]) -> None:
    before, began_ns = clock(), time.monotonic_ns()
    samples.is_open = True
    await asyncio.sleep(seconds)
    samples.is_open = False
    samples.seconds = (time.monotonic_ns() - began_ns) / 1e9
    samples.clocks_ns = {name: spent - before[name] for name, spent in clock().items()}


def _request(port: int, scenario: Scenario) -> bytes:
    body = orjson.dumps(
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": "You are a helpful assistant."},
                {"role": "user", "content": str(scenario.gap_ms)},
            ],
            "max_tokens": scenario.events,
            "temperature": 0.7,
            "stream": scenario.streamed,
        }
    )
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
