"""One request that a fake got, and the means to answer it down to the byte and the FIN."""

import asyncio
import json
import socket
import struct
import time
from typing import Any


def reset(transport: Any) -> None:
    """Close a transport with a reset instead of a FIN."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Call:
    """One request; times are seconds since the epoch, None until it happens.

    `disconnected` is set when the peer's connection is gone; `disconnected_at` tells when, if it went before the answer
    was complete.
    """

    def __init__(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes, transport: Any) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.disconnected = asyncio.Event()
        self.received_at = time.time()
        self.ended_at: float | None = None
        self.disconnected_at: float | None = None
        self._transport = transport
        self._chunked = False

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def streams(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.json.get("stream"))

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
        reset(self._transport)

    def note_ended(self) -> None:
        """Remember when the answer was over, in whatever way."""
        self.ended_at = time.time()

    def note_disconnected(self) -> None:
        """Remember that the peer is gone, and when, if the answer was not over."""
        if self.ended_at is None:
            self.disconnected_at = time.time()
        self.disconnected.set()
