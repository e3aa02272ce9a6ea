"""Many random streams through the gateway, compared by their hashes: `python -m tests.volume.streams 10000`."""

import asyncio
import hashlib
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from tests.fakes.engine import DONE, Call, FakeEngine, event, usage_event
from tests.fakes.gateway import RunningGateway, assert_quiescent, running_gateway

AT_ONCE = 50
# The usage event belongs to whoever asks for it, and no heartbeat comes between: what is sent is what arrives.
BODY = {"messages": [{"role": "user", "content": "x"}], "stream": True, "stream_options": {"include_usage": True}}
SETTINGS = {"GATEWAY_HEARTBEAT_SECONDS": "3600"}
WORDS = ("Hello", " world", "你好", "文心", "🔥", "👩‍👩‍👧", "\n\n", "data: ", '"', "\\", "é", "[DONE]", "\u2028", " ")


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run brought: streams compared, those that differed, bytes, reads of clients, seconds."""

    streams: int
    different: int
    mebibytes: float
    reads: int
    seconds: float


def random_stream(dice: random.Random) -> bytes:
    """Return a whole stream of up to 20 events, with line ends of one kind."""
    parts = [random_event(dice) for _ in range(dice.randint(1, 20))]
    stream = b"".join([*parts, usage_event(dice.randint(0, 99), dice.randint(0, 99)), DONE])
    return stream.replace(b"\n", dice.choice([b"\n", b"\n", b"\r\n", b"\r"]))


def random_event(dice: random.Random) -> bytes:
    """Return an event as engines write them, or as the specification lets them."""
    kind = dice.random()
    if kind < 0.7:
        return event("".join(dice.choices(WORDS, k=dice.randint(1, 30))))
    if kind < 0.8:
        return b": ping\n\n"
    if kind < 0.9:
        return b'data: {"choices":\ndata:[{"delta":{"content":"' + dice.choice(WORDS[:6]).encode() + b'"}}]}\n\n'
    return b"event: note\nid: 1\ndata: " + dice.randbytes(dice.randint(0, 40)).hex().encode() + b"\n\n"


def random_chunks(dice: random.Random, stream: bytes) -> list[bytes]:
    """Return a stream cut at random places, characters and line ends included."""
    places = sorted(dice.sample(range(1, len(stream)), k=min(dice.randint(0, 40), len(stream) - 1)))
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]


async def compare(streams: int, seed: int = 1) -> Figures:
    """Send so many streams through a gateway and compare what was sent with what arrived."""
    async with FakeEngine() as engine, running_gateway(engine, **SETTINGS) as gateway:
        comparison = _Comparison(engine, gateway, seed)
        started_at = time.perf_counter()
        numbers = iter(range(streams))
        await asyncio.gather(*(comparison.work(numbers) for _ in range(AT_ONCE)))
        seconds = time.perf_counter() - started_at
        await assert_quiescent(gateway, engine)
    return Figures(streams, comparison.different, comparison.received / 2**20, comparison.reads, seconds)


class _Comparison:
    """Asks for streams by their number, which stands in `user`, so that both sides make the same one."""

    def __init__(self, engine: FakeEngine, gateway: RunningGateway, seed: int) -> None:
        engine.script = self.send
        self._gateway = gateway
        self._seed = seed
        self._sent: dict[str, str] = {}
        self.different = self.received = self.reads = 0

    async def send(self, call: Call) -> None:
        """Be the engine of one stream."""
        number = call.json["user"]
        dice = random.Random(f"{self._seed}-{number}")  # noqa: S311  (no secret)
        stream = random_stream(dice)
        self._sent[number] = hashlib.sha256(stream).hexdigest()
        call.stream_head()
        for chunk in random_chunks(dice, stream):
            call.chunk(chunk)
            # Each chunk gets a turn of the loop to itself, so that it can arrive alone.
            await asyncio.sleep(0)
        call.end()

    async def work(self, numbers: Iterator[int]) -> None:
        """Be one client, of one stream after the other."""
        for number in numbers:
            arrived = hashlib.sha256()
            body = {**BODY, "user": str(number)}
            async with self._gateway.client.stream("POST", "/v1/chat/completions", json=body) as response:
                assert response.status_code == 200
                async for chunk in response.aiter_raw():
                    arrived.update(chunk)
                    self.received += len(chunk)
                    self.reads += 1
            self.different += arrived.hexdigest() != self._sent.pop(str(number))


if __name__ == "__main__":
    print(uvloop.run(compare(int(sys.argv[1]))))
