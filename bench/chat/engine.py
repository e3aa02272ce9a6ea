"""A paced gateway: streams answers on time, with the moment of sending in each token.

`python -m bench.chat.engine` listens on a free port of 127.0.0.1 and prints it. A question is two numbers, the
milliseconds between two tokens and how many there are.
"""

import asyncio
import json
import sys
import time

import uvloop

MODEL = "paced"
# So wide that the context of the page never cuts an answer.
CONTEXT_TOKENS = 131_072
ANSWERS = {
    "/v1/models": json.dumps({"object": "list", "data": [{"id": MODEL, "max_model_len": CONTEXT_TOKENS}]}).encode(),
    "/tokenize": json.dumps({"count": 10, "max_model_len": CONTEXT_TOKENS}).encode(),
    "/readyz": b'{"status": "ready", "ready": true}',
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKENS_A_LINE = 20
END = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def main() -> int:
    """Serve until the end."""
    uvloop.run(serve())
    return 0


async def serve() -> None:
    """Listen, and tell where."""
    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(line[16:]) for line in head.lower().split("\r\n") if line[:16] == "content-length: "), 0)
            body = await reader.readexactly(length)
            path = head.split(" ", 2)[1].partition("?")[0]
            if path in ANSWERS:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n%b" % (len(ANSWERS[path]), ANSWERS[path]))
            else:
                await stream(writer, json.loads(body)["messages"][-1]["content"])
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def stream(writer: asyncio.StreamWriter, question: str) -> None:
    """Write one answer; a token that is late does not delay those after it."""
    gap_ms, count = question.split()
    writer.write(HEAD)
    started_at = time.monotonic()
    for number in range(int(count)):
        await asyncio.sleep(started_at + number * int(gap_ms) / 1000 - time.monotonic())
        text = f"{time.monotonic_ns()}" + ("\n" if number % TOKENS_A_LINE == TOKENS_A_LINE - 1 else " ")
        write_event(writer, json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode())
        await writer.drain()
    write_event(writer, END)
    write_event(writer, b"[DONE]")
    writer.write(b"0\r\n\r\n")


def write_event(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write one server-sent event as one chunk."""
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))


if __name__ == "__main__":
    sys.exit(main())
