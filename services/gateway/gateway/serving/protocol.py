"""A connection from a client: HTTP/1.1 as uvicorn speaks it, bounded, refusals in the error shape."""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.errors import GatewayError, HeadTooLarge, InvalidRequest
from gateway.schemas import LEAVING
from gateway.serving.cycle import Cycle

# nginx takes 32 KiB.
MAX_HEAD_BYTES = 65_536
_TOO_LARGE = f"The request's headers are larger than {MAX_HEAD_BYTES} bytes."


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools; what is no HTTP, or has an endless head, gets the error shape too.

    The parser collects a line for as long as it grows, so both are bounded: the target and the headers (trailers
    too) of a request, and what arrives without completing any of them.
    """

    _head_bytes = 0
    _unread_bytes = 0
    _idle_since: float | None = None
    # The one whose answer is being made; `cycle` is the last that has arrived.
    _answering: Cycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._waiting: deque[Cycle] = deque()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits for this connection."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._answering is not None:
            self._answering.gone()

    def data_received(self, data: bytes) -> None:
        """Read on; refuse what completes nothing and grows beyond the limit."""
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadTooLarge(_TOO_LARGE))

    # --- What the parser tells ------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin to count a head's bytes."""
        self._head_bytes = self._unread_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or a trailer."""
        self._count(len(name) + len(value))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin to serve the request, or have it wait for the answers to those before it."""
        scope = cast("dict[str, Any]", self.scope)
        http_version = self.parser.get_http_version()
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["http_version"] = http_version
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        before = self.cycle
        cycle = Cycle(
            scope,
            self.transport,
            self.flow,
            keep_alive=http_version != "1.0" and self.parser.should_keep_alive(),
            waits_for_100=self.expect_100_continue,
            always=self.server_state.default_headers,
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {LEAVING: cycle.when_gone}
        self.cycle = cast("RequestResponseCycle", cycle)
        if before is None or before.response_complete:
            self._answer(cycle)
        else:
            self.flow.pause_reading()
            self._waiting.append(cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, which has its own limit."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread_bytes = 0
        super().on_message_complete()

    # --- Between requests -----------------------------------------------------

    def on_response_complete(self) -> None:
        """Go on with the next request that has arrived, or wait for one."""
        self._answering = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._waiting:
            self._answer(self._waiting.popleft())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for long."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None or self.transport.is_closing():
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_again_in(left)
        else:
            self.transport.close()

    def _unset_keepalive_if_required(self) -> None:
        """Note that it is not idle; the timer finds out, since setting it anew for every request costs more."""
        self._idle_since = None

    def _look_again_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _answer(self, cycle: Cycle) -> None:
        self._answering = cycle
        task = self.loop.create_task(cycle.run(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    # --- Refusals -------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be read, and close."""
        self._refuse(HeadTooLarge(_TOO_LARGE) if self._head_bytes > MAX_HEAD_BYTES else InvalidRequest(msg))

    def _count(self, size: int) -> None:
        self._unread_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            # Ends the parser; `send_400_response` follows.
            raise HeadTooLarge(_TOO_LARGE)

    def _refuse(self, error: GatewayError) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            # An answer is on its way; nothing else may be written into it.
            self.transport.close()
            return
        body = error.encode()
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
