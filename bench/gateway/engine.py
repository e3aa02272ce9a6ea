"""A paced engine: answers as vLLM does, on time, with the moment of sending in each event's text.

`python -m bench.gateway.engine` listens on a free port of 127.0.0.1 and prints it. The last message's text says how
many milliseconds lie between two events, `max_tokens` how many events there are; a text that is no number, as in the
gateway's trial generations, means none.
"""

import asyncio
import gc
import json
import sys
import time
from typing import Any

import uvloop

MODEL = "paced"
_CHUNK = b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"paced","choices":['
_EVENT_START = b"data: " + _CHUNK + b'{"index":0,"delta":{"content":"'
_EVENT_END = b'"},"logprobs":null,"finish_reason":null}]}\n\n'
_FINISH = b"data: " + _CHUNK + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n'
_STAMP = b"%020d"
_STAMP_BYTES = 20
_CHUNK_START = b"%x\r\n" % (len(_EVENT_START) + _STAMP_BYTES + len(_EVENT_END)) + _EVENT_START
_CHUNK_END = _EVENT_END + b"\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Work:
    """What the engine's own metrics tell of it."""

    def __init__(self) -> None:
        self.running = 0
        self.tokens = 0
        self.started_at = time.time()

    def exposition(self) -> bytes:
        """Return the metrics page, as far as anybody reads it."""
        labels = f'{{model_name="{MODEL}",engine="0"}}'
        return (
            f"vllm:num_requests_running{labels} {self.running}\n"
            f"vllm:num_requests_waiting{labels} 0\n"
            f"vllm:generation_tokens_total{labels} {self.tokens}\n"
            f"process_start_time_seconds {self.started_at}\n"
        ).encode()


class Connection(asyncio.Protocol):
    """Serves one request after the other; pipelining is not expected."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport: asyncio.Transport = transport

    def connection_lost(self, _exc: Exception | None) -> None:
        """End the work for a peer that has left."""
        if self._timer is not None:
            self._timer.cancel()
            self._work.running -= 1

    def data_received(self, data: bytes) -> None:
        """Answer as soon as a request is complete."""
        self._received += data
        head, blank, rest = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(_header(head, b"content-length") or 0)
        if len(rest) < length:
            return
        self._received = b""
        method, path, _ = head.split(b" ", 2)
        if method == b"GET":
            self._answer_look(path)
        else:
            self._generate(json.loads(rest))

    def _answer_look(self, path: bytes) -> None:
        if path == b"/v1/models":
            model = {"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 131_072}
            self._whole(json.dumps({"object": "list", "data": [model]}).encode())
        elif path == b"/metrics":
            self._whole(self._work.exposition(), b"text/plain")
        else:
            self._whole(b"")

    def _generate(self, request: dict[str, Any]) -> None:
        if not request.get("stream"):
            self._work.tokens += 1
            self._whole(_completion())
            return
        content = request["messages"][-1]["content"]
        self._gap_seconds = int(content) / 1000 if content.isdigit() else 0.0
        self._left = int(request.get("max_tokens", 1))
        options = request.get("stream_options") or {}
        self._end = _stream_end(self._left, with_usage=bool(options.get("include_usage")))
        self._due_at = self._loop.time()
        self._work.running += 1
        self._send_event(_STREAM_HEAD)

    def _send_event(self, head: bytes = b"") -> None:
        """Send the next event, the last one together with the end of the stream, and set the timer for another."""
        self._left -= 1
        self._work.tokens += 1
        self._due_at += self._gap_seconds
        tail = _CHUNK_END if self._left else _CHUNK_END + self._end
        self._transport.write(head + _CHUNK_START + _STAMP % time.monotonic_ns() + tail)
        if self._left:
            self._timer = self._loop.call_at(self._due_at, self._send_event)
        else:
            self._timer = None
            self._work.running -= 1

    def _whole(self, body: bytes, content_type: bytes = b"application/json") -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (content_type, len(body))
        self._transport.write(head + body)


def _header(head: bytes, name: bytes) -> bytes | None:
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else None


def _completion() -> bytes:
    return (
        b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"paced","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":"' + _STAMP % time.monotonic_ns() + b'"},"logprobs":null,'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"total_tokens":8,"completion_tokens":1}}'
    )


def _stream_end(events: int, *, with_usage: bool) -> bytes:
    """Return what follows the last event: the finish reason, usage if asked for, `[DONE]`, the body's end."""
    end = _FINISH
    if with_usage:
        usage = b'"usage":{"prompt_tokens":7,"total_tokens":%d,"completion_tokens":%d}}\n\n' % (events + 7, events)
        end += b"data: " + _CHUNK + b"]," + usage
    end += b"data: [DONE]\n\n"
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(end), end)


async def serve() -> None:
    """Serve until killed."""
    work = Work()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(work), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    # A collection in the middle of a window would count as the path's time.
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
