"""`python -m bench.engine.client`: one process of the load.

The order comes as JSON on standard input, what was seen leaves as JSON on standard output. Each stream has a connection
of its own and asks again as soon as its answer is complete. Times are on CLOCK_MONOTONIC, which is one for the machine,
so that several of these processes and the sweep hold the same window.
"""

import array
import asyncio
import base64
import itertools
import json
import os
import random
import re
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

_CONTENT, _EMPTY, _END = b'"content":"', b'"content":""', b"0\r\n\r\n"
_USAGE = b'"usage":{'
_COUNT = re.compile(rb'"(prompt|completion)_tokens":(\d+)')
_WORDS = (
    *("春天", "模型", "部署", "推理", "显存", "专家", "网关", "请求", "响应", "延迟", "吞吐", "缓存"),
    *("token", "stream", "the", "of", "serving"),
)
_SHARED = "You answer briefly, in the language of the question, and say so when you do not know. "
_RETRY_SECONDS = 0.2
# What is under way when the window closes has to end within this time.
TAIL_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Order:
    """What one process does: as many streams as ports are named, from `begin_ns` on, counted within the window."""

    ports: list[int]
    model: str
    output_tokens: int
    prompt_bytes: int
    shared_bytes: int
    temperature: float
    begin_ns: int
    spread_ns: int
    open_ns: int
    close_ns: int
    cores: list[int]
    # Addresses that streams come from in turns, each a client to a gateway; without any, the system's choice.
    addresses: list[str] = field(default_factory=list)
    # Answers are up to this share shorter or longer, by chance: equally long ones keep streams in step with each other.
    variation: float = 0.0


@dataclass(slots=True)
class Seen:
    """What came within the window; gaps lie between two reads of one stream that brought text."""

    ttft_us: "array.array[int]" = field(default_factory=lambda: array.array("I"))
    gap_us: "array.array[int]" = field(default_factory=lambda: array.array("I"))
    answer_us: "array.array[int]" = field(default_factory=lambda: array.array("I"))
    tokens: float = 0.0
    events: int = 0
    reads: int = 0
    prompt_tokens: int = 0
    answers: int = 0
    short: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def fail(self, reason: str) -> None:
        """Count a failure."""
        self.failures[reason] = self.failures.get(reason, 0) + 1


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, order: Order, port: int, address: str | None, seen: Seen) -> None:
        self._order, self._port, self._seen = order, port, seen
        self._from = (address, 0) if address else None
        self.busy = False
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Ask at once."""
        self._transport = transport
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Come again, if the load goes on."""
        if self.busy:
            self._seen.fail(f"connection lost: {type(exc).__name__}")
        self.busy = False
        if time.monotonic_ns() < self._order.close_ns:
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, lambda: asyncio.ensure_future(self.connect()))

    async def connect(self) -> None:
        """Open the connection."""
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self, "127.0.0.1", self._port, local_addr=self._from)
        except OSError as error:
            self._seen.fail(f"no connection: {type(error).__name__}")

    def close(self) -> None:
        """Leave, whatever is under way."""
        if self._transport is not None:
            self.busy = False
            self._transport.close()

    def _ask(self) -> None:
        now = time.monotonic_ns()
        if now >= self._order.close_ns:
            self._transport.close()
            return
        self.busy, self._first_read = True, True
        self._asked, self._last, self._all, self._counted = now, 0, 0, 0
        self._usage = b""
        self._wanted = round(self._order.output_tokens * (1 + self._order.variation * random.uniform(-1, 1)))
        self._transport.write(request(self._order, self._wanted))

    def data_received(self, data: bytes) -> None:
        """Take the events in what has come."""
        now = time.monotonic_ns()
        if self._first_read:
            self._first_read = False
            if not data.startswith(b"HTTP/1.1 200"):
                self._seen.fail(data[:16].decode("latin-1"))
                self.busy = False
                self._transport.close()
                return
        count = data.count(_CONTENT) - data.count(_EMPTY)
        if count > 0:
            self._take(now, count)
        if _USAGE in data:
            self._usage = data
        if data.endswith(_END):
            self._end(now)

    def _take(self, now: int, count: int) -> None:
        seen, order = self._seen, self._order
        is_open = order.open_ns <= now < order.close_ns
        self._all += count
        if is_open:
            self._counted += count
            seen.events += count
            seen.reads += 1
        if self._last:
            if is_open:
                seen.gap_us.append((now - self._last) // 1000)
        elif order.open_ns <= self._asked < order.close_ns:
            seen.ttft_us.append((now - self._asked) // 1000)
        self._last = now

    def _end(self, now: int) -> None:
        seen = self._seen
        self.busy = False
        counts = {name: int(number) for name, number in _COUNT.findall(self._usage)}
        tokens = counts.get(b"completion", 0)
        if self._all:
            seen.tokens += tokens * self._counted / self._all
        if tokens != self._wanted:
            seen.short += 1
        if self._order.open_ns <= now < self._order.close_ns:
            seen.answers += 1
            seen.prompt_tokens += counts.get(b"prompt", 0)
            seen.answer_us.append((now - self._asked) // 1000)
        self._ask()


def request(order: Order, output_tokens: int) -> bytes:
    """Return a request whose prompt differs from its first bytes on, or after a part that all share."""
    own = f"{random.getrandbits(64):016x} "
    messages = []
    if order.shared_bytes:
        text = _SHARED * (order.shared_bytes // len(_SHARED) + 1)
        messages.append({"role": "system", "content": text[: order.shared_bytes]})
    left = order.prompt_bytes - order.shared_bytes - len(own)
    # A word is six to seven bytes on average, its blank included.
    own += " ".join(random.choices(_WORDS, k=max(1, left // 6)))
    own = own.encode()[: order.prompt_bytes - order.shared_bytes].decode(errors="ignore")
    messages.append({"role": "user", "content": own})
    body = json.dumps(
        {
            "model": order.model,
            "messages": messages,
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": order.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        ensure_ascii=False,
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def load(order: Order) -> Seen:
    """Carry out an order."""
    loop, seen = asyncio.get_running_loop(), Seen()
    addresses = itertools.cycle(order.addresses or [None])
    streams = [Stream(order, port, address, seen) for port, address in zip(order.ports, addresses, strict=False)]
    tasks = []

    def begin(stream: Stream) -> None:
        tasks.append(asyncio.ensure_future(stream.connect()))

    delay = (order.begin_ns - time.monotonic_ns()) / 1e9
    for index, stream in enumerate(streams):
        loop.call_later(max(0.0, delay + order.spread_ns / 1e9 * index / len(streams)), begin, stream)
    await asyncio.sleep((order.close_ns - time.monotonic_ns()) / 1e9)
    ends_at = time.monotonic() + TAIL_SECONDS
    while any(stream.busy for stream in streams) and time.monotonic() < ends_at:  # noqa: ASYNC110 - a look now and then costs less than an event each
        await asyncio.sleep(0.02)
    for stream in streams:
        if stream.busy:
            seen.fail("not complete in time")
        stream.close()
    return seen


def main() -> int:
    """Read the order, carry it out, and say what was seen."""
    order = Order(**json.load(sys.stdin))
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    seen = uvloop.run(load(order))
    packed = {name: base64.b64encode(getattr(seen, name)).decode() for name in ("ttft_us", "gap_us", "answer_us")}
    plain = ("tokens", "events", "reads", "prompt_tokens", "answers", "short", "failures")
    told = {**packed, **{name: getattr(seen, name) for name in plain}, "cpu_seconds": time.process_time()}
    # sys.stdout, a pipe, lost what went beyond its first 64 KiB (seen with CPython 3.11 and 3.12, after uvloop.run).
    left = memoryview(json.dumps(told).encode())
    while left:
        left = left[os.write(sys.stdout.fileno(), left) :]
    return 0


if __name__ == "__main__":
    sys.exit(main())
