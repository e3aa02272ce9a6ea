"""One request and its answer on a connection: what an ASGI application receives and sends.

In place of uvicorn's own, which writes an answer's head alone and needs a task that waits to learn that a client has
left; both cost more than the rest of an answer's way through the server (docs/adr/0020).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.schemas import LINE

_log = logging.getLogger("gateway.serving")
_NO_BODY = frozenset({204, 304})


class Cycle:
    """Serves one request; uvicorn's protocol fills in what arrives and says when the connection is gone.

    The head of an answer leaves with the first of its body, in one write. Heads are trusted: those who make them pass
    nothing on from clients that could break them.
    """

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        flow: FlowControl,
        *,
        keep_alive: bool,
        waits_for_100: bool,
        always: list[tuple[bytes, bytes]],
        on_response: Callable[[], None],
    ) -> None:
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = waits_for_100
        self.body = bytearray()
        self.more_body = True
        self.message_event = asyncio.Event()
        self.disconnected = False
        # The client sends no more: it has left, for all that can be known before an answer is written.
        self.has_ended = False
        self.response_started = False
        self.response_complete = False
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._always = always
        self._on_response = on_response
        self._on_gone: Callable[[], None] | None = None
        self._head = b""
        self._is_chunked = False
        self._has_body = scope["method"] != "HEAD"

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer; a connection whose answer it leaves open is closed."""
        self._scope["extensions"] = {LINE: self}
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:  # noqa: BLE001  (the last to see it; logged with its traceback)
            _log.exception("the application failed")
        finally:
            if not self.response_complete and not self.disconnected:
                # At once: what is written already waits for a client that takes nothing.
                self._transport.abort()
            # The scope names this cycle: a knot that only the collector would untie, thousands at a time.
            del self._scope["extensions"]

    def gone(self) -> None:
        """Note that the connection is lost, and tell whoever wants to know."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()
        if self.disconnected and self._on_gone:
            self._on_gone()

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to know when the client leaves."""
        return self._on_gone is not None

    def when_gone(self, call: Callable[[], None] | None) -> None:
        """Call when the client leaves before the answer is complete, soon if it has left; None calls nobody."""
        self._on_gone = call
        if call is None:
            return
        # Its leaving can only be seen by reading on.
        self._flow.resume_reading()
        if self.disconnected or self.has_ended:
            asyncio.get_running_loop().call_soon(call)

    async def receive(self) -> Message:
        """Return what has arrived of the body, waiting for the first of it; `http.disconnect` without a client."""
        if self.waiting_for_100_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self._flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def write(self, piece: bytes) -> bool:
        """Write a piece of an answer, neither its first nor its last.

        False without effect if that would have to wait, or there is nobody to write to.
        """
        if self._flow.write_paused or self.disconnected or self._head or not (self.response_started and self._has_body):
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
        return True

    async def send(self, message: Message) -> None:
        """Send the head or a piece of the body; waits while the client takes nothing, does nothing without a client."""
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._begin(message)
        else:
            self._write(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, start: Any) -> None:
        """Compose the head."""
        self.response_started = True
        self.waiting_for_100_continue = False
        status = start["status"]
        is_chunked = self._has_body and status not in _NO_BODY and self._scope["http_version"] == "1.1"
        lines = [STATUS_LINE[status]]
        for name, value in (*self._always, *start.get("headers", ())):
            if name == b"content-length":
                is_chunked = False
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self._is_chunked = is_chunked

    def _write(self, body: bytes, *, is_last: bool) -> None:
        if not self._has_body:
            body = b""
        elif self._is_chunked:
            end = b"0\r\n\r\n" if is_last else b""
            body = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        if data := self._head + body:
            self._head = b""
            self._transport.write(data)
        if is_last:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self._transport.close()
            self._on_response()
