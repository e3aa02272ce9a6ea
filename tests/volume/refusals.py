"""How quickly hostile bodies are refused, and what they cost everybody else: `python -m tests.volume.refusals`.

The clients are in a process of their own. A refusal's time runs from the byte that decides it (the last of a body, the
end of headers that announce too much, the first beyond the limit) to the status line; the stall is the longest
time that the gateway's loop was late for a timer meanwhile.
"""

import asyncio
import json
import select
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse

import uvloop

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import CHAT, running_gateway

PIECE_BYTES = 65_536
HUGE_BYTES = 100_000_000
LIMIT_BYTES = 2_097_152
TIMES = 7
_LONE = "\\ud83d"


def lone(*, stream: bool) -> dict[str, bytes]:
    """Return chats with half a surrogate pair in every place that takes a text."""
    message = {"role": "user", "content": "hi"}
    chat = {"messages": [message], "stream": stream}
    places = {
        "content": {**chat, "messages": [{**message, "content": "@"}]},
        "role": {**chat, "messages": [{**message, "role": "@"}]},
        "name": {**chat, "messages": [{**message, "name": "@"}]},
        "stop": {**chat, "stop": "@"},
        "model": {**chat, "model": "@"},
        "user": {**chat, "user": "@"},
        "a field's name": {**chat, "@": 1},
    }
    return {place: json.dumps(body).replace("@", _LONE).encode() for place, body in places.items()}


def many(field: str, item: str, number: int) -> bytes:
    """Return a chat with a long list in one field."""
    return json.dumps(CHAT).encode()[:-1] + f',"{field}":[{",".join([item] * number)}]}}'.encode()


BODIES: dict[str, bytes] = {
    "10,000 lists deep": many("x", "[" * 10_000 + "]" * 10_000, 1),
    "5,000 objects deep": b'{"x":' * 5_000 + b"1" + b"}" * 5_000,
    "NaN": json.dumps({**CHAT, "temperature": float("nan")}).encode(),
    "max_tokens 1e309": json.dumps(CHAT).encode()[:-1] + b',"max_tokens":1e309}',
    **{f"lone surrogate in {place}": body for place, body in lone(stream=False).items()},
    "500,000 stops (above the limit)": many("stop", '"abcd"', 500_000),
    "290,000 stops": many("stop", '"abcd"', 290_000),
    "690,000 empty lists": many("x", "[]", 690_000),
    "690,000 empty objects": many("x", "{}", 690_000),
    "100,000 messages": many("messages", '{"role":"user"}', 100_000),
    "100,000 null fields": b"{" + b",".join(b'"%d":null' % number for number in range(100_000)) + b"}",
    "1,024 messages of 16 parts, then a wrong field": json.dumps(
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 16}] * 1024, "x": 1}
    ).encode(),
    "2 MB of text, then a wrong field": json.dumps(
        {"messages": [{"role": "user", "content": "x" * 2_000_000}], "x": 1}
    ).encode(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """One answer: its status, the code in its body, milliseconds, and how much of the body had been sent."""

    status: int
    code: str
    milliseconds: float
    sent_bytes: int


def ask(port: int, body: bytes) -> Refused:
    """Send a body of known length and return the answer."""
    return _ask(port, [b"content-length: %d" % len(body)], iter([body]), decides_at=len(body))


def ask_huge(port: int, *, chunked: bool) -> Refused:
    """Send 100 MB piece by piece until the answer comes, with the length announced or in chunks."""
    piece = b"x" * PIECE_BYTES
    pieces = (piece for _ in range(0, HUGE_BYTES, PIECE_BYTES))
    if not chunked:
        return _ask(port, [b"content-length: %d" % HUGE_BYTES], pieces, decides_at=0)
    framed = (b"%x\r\n%b\r\n" % (len(part), part) for part in pieces)
    return _ask(port, [b"transfer-encoding: chunked"], framed, decides_at=LIMIT_BYTES + 1)


def _ask(port: int, headers: list[bytes], pieces: Iterator[bytes], decides_at: int) -> Refused:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = [b"POST /v1/chat/completions HTTP/1.1", b"host: gateway", *headers, b"", b""]
        connection.sendall(b"\r\n".join(head))
        sent, decided_at = 0, time.perf_counter()
        for piece in pieces:
            if select.select([connection], [], [], 0)[0]:
                break
            # An answered gateway need not read on.
            with suppress(ConnectionError):
                connection.sendall(piece)
            sent += len(piece)
            if sent - len(piece) < decides_at <= sent:
                decided_at = time.perf_counter()
        select.select([connection], [], [])
        milliseconds = (time.perf_counter() - decided_at) * 1000
        response = HTTPResponse(connection)
        response.begin()
        return Refused(response.status, json.loads(response.read())["error"]["code"], milliseconds, sent)


class Stalls:
    """Watches how late the running loop is for a timer of one millisecond."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            due_at = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - due_at) * 1000)


async def measure() -> None:
    """Print one line for each body: median and longest refusal, longest stall."""
    print(f"{'body':48} {'MB':>6} {'status':>6} {'median ms':>9} {'max ms':>7} {'stall ms':>8}")
    with ProcessPoolExecutor(1) as clients:
        async with FakeEngine() as engine, running_gateway(engine) as gateway:
            port = gateway.port
            await _row(clients, "nothing (the machine itself)", ask, port, b"")
            for name, body in BODIES.items():
                await _row(clients, name, ask, port, body)
            for chunked in (False, True):
                await _row(clients, f"100 MB, {'in chunks' if chunked else 'announced'}", _ask_huge, port, chunked)
            assert engine.calls == []
        async with FakeEngine() as engine, running_gateway(engine, GATEWAY_MAX_BODY_BYTES="8000000") as gateway:
            await _row(
                clients, "500,000 stops (limit 8 MB)", ask, gateway.port, BODIES["500,000 stops (above the limit)"]
            )


def _ask_huge(port: int, chunked: bool) -> Refused:
    return ask_huge(port, chunked=chunked)


async def _row(clients: ProcessPoolExecutor, name: str, call: object, *arguments: object) -> None:
    loop = asyncio.get_running_loop()
    stalls = Stalls()
    watching = asyncio.create_task(stalls.watch())
    answers = [await loop.run_in_executor(clients, call, *arguments) for _ in range(TIMES)]  # type: ignore[arg-type]
    watching.cancel()
    (status,) = {answer.status for answer in answers}
    times = [answer.milliseconds for answer in answers]
    sent = max(answer.sent_bytes for answer in answers) / 1e6
    print(
        f"{name:48} {sent:6.2f} {status:6} {statistics.median(times):9.1f} {max(times):7.1f} {stalls.longest_ms:8.1f}"
    )


if __name__ == "__main__":
    uvloop.run(measure())
