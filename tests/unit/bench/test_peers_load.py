"""bench/peers: the load tells what is whole from what is not, and its times are those of the answers."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.peers.install import program

pytestmark = pytest.mark.process

EVENTS = 3
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
FINISH = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


def token(number: int) -> bytes:
    return b'data: {"choices": [{"delta": {"content": "w%d "}}]}\n\n' % number


def chunked(*payloads: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(payload), payload) for payload in payloads) + b"0\r\n\r\n"


TOKENS = [token(number) for number in range(EVENTS)]
SOUND = HEAD + chunked(*TOKENS, FINISH, DONE)


@asynccontextmanager
async def answering(answer: bytes, *, piece_bytes: int = 1 << 16, delay_seconds: float = 0.0) -> AsyncIterator[int]:
    """Answer every request with the same bytes, then close where they are no whole answer; yields the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
                await asyncio.sleep(delay_seconds)
                for at in range(0, len(answer), piece_bytes):
                    writer.write(answer[at : at + piece_bytes])
                    await writer.drain()
                    await asyncio.sleep(0)
                if not answer.endswith(b"0\r\n\r\n"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def load(port: int, *words: str) -> dict[str, Any]:
    options = ("--port", str(port), "--seconds", "0.2", "--settle", "0", "--tail", "10")
    process = await asyncio.create_subprocess_exec(program("load"), *options, *words, stdout=PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


# Where something has to come within the window, also on a busy machine.
LONG = ("--seconds", "0.8")


async def load_streams(port: int, *words: str) -> dict[str, Any]:
    return await load(port, "--streamed", "--events", str(EVENTS), *words)


@pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 16])
async def test_a_whole_stream_is_clean_however_it_comes(piece_bytes: int) -> None:
    async with answering(SOUND, piece_bytes=piece_bytes) as port:
        found = await load_streams(port, *LONG)
    assert found["first_fault"] is None
    assert found["clean"] == found["asked"] > 0
    assert found["events"] >= EVENTS


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (HEAD + chunked(TOKENS[0], TOKENS[2], FINISH, DONE), "a token is missing, twice there or out of order"),
        (HEAD + chunked(TOKENS[0], *TOKENS, FINISH, DONE), "a token is missing, twice there or out of order"),
        (HEAD + chunked(*TOKENS[:2], FINISH, DONE), "tokens are missing"),
        (HEAD + chunked(*TOKENS, FINISH), "no [DONE]"),
        (HEAD + chunked(*TOKENS, DONE), "no finish reason"),
        (HEAD + chunked(*TOKENS, FINISH, DONE, token(EVENTS)), "something follows [DONE]"),
        (HEAD + chunked(*TOKENS, b'data: {"error": {}}\n\n', FINISH, DONE), "an error within an answer"),
        (HEAD + chunked(*TOKENS, FINISH, DONE[:-2]), "the last event is cut"),
        (HEAD + chunked(*TOKENS, b"data: {\n\n", FINISH, DONE), "an event is no JSON object"),
        (HEAD + chunked(*TOKENS, b"<html>\n\n", FINISH, DONE), "a line is no event"),
        (SOUND[:-5], "the connection was lost"),
        (SOUND[:200], "the connection was lost"),
        (SOUND + b"x", "bytes follow the answer"),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}", "a status other than 200"),
    ],
)
async def test_a_stream_at_fault_is_not_clean(answer: bytes, fault: str) -> None:
    async with answering(answer) as port:
        found = await load_streams(port)
    assert found["asked"] > 0
    assert (found["clean"], found["answers"], found["first_fault"]) == (0, 0, fault)


async def test_times_are_those_of_the_answers() -> None:
    async with answering(SOUND, delay_seconds=0.05) as port:
        found = await load_streams(port, *LONG)
    assert 50_000 <= found["first_token_us"]["p50"] <= found["answer_us"]["p99"]
    assert found["answers"] <= found["seconds"] / 0.05 + 1


async def test_the_engine_keeps_its_pace_and_the_load_its_clocks() -> None:
    engine = await asyncio.create_subprocess_exec(program("engine"), stdout=PIPE)
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        assert engine.stdout
        port = int(await engine.stdout.readline())
        pids = ("--pids", f"{engine.pid},{busy.pid}")
        paced = await load(port, "--clients", "4", "--streamed", "--events", "11", "--gap-ms", "5", *pids, *LONG)
        whole = await load(port, "--clients", "2", *pids, *LONG)
    finally:
        for process in (engine, busy):
            process.terminate()
            await process.wait()
    assert (paced["first_fault"], whole["first_fault"]) == (None, None)
    assert (paced["clean"], whole["clean"]) == (paced["asked"], whole["asked"])
    # Ten gaps of 5 ms, the first of which may be up to 1 ms short: the engine's clock has steps of 1 ms.
    assert paced["answer_us"]["p50"] >= 49_000
    for found in (paced, whole):
        assert 0 < found["cpu_us"]["engine"] < found["seconds"] * 1e6
        assert 0 < found["cpu_us"]["system"] <= found["seconds"] * 1.05e6
