"""A connection from a client: HTTP/1.1 as uvicorn speaks it, bounded, refusals in the error shape."""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.errors import GatewayError, HeadTooLarge, InvalidRequest
from gateway.serving.cycle import Cycle

# nginx takes 32 KiB.
MAX_HEAD_BYTES = 65_536
# While more requests wait, no more is read, and a client that leaves is not seen to.
MOST_WAITING = 32
# Of what has arrived so much is parsed at a time: the smallest requests in it are some hundreds.
PIECE_BYTES = 16_384
_NO_HTTP = "Invalid HTTP request received."
_TOO_LARGE = f"The request's headers are larger than {MAX_HEAD_BYTES} bytes."


class _Flow(FlowControl):
    """Reads no further while there is more than is to be parsed now."""

    is_behind = False

    def resume_reading(self) -> None:
        """Read on, if that is wanted."""
        if not self.is_behind:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools; what is no HTTP, or has an endless head, gets the error shape too.

    The parser collects a line for as long as it grows, so both are bounded: the target and the headers (trailers
    too) of a request, and what arrives without completing any of them.
    """

    _head_bytes = 0
    _unread_bytes = 0
    _unparsed = b""
    # Since when no request has been there to answer; None while one is.
    _idle_since: float | None = None
    _unsent_bytes = 0
    # Said when what came before it is answered; what comes after it is not read.
    _refusal: GatewayError | None = None
    # The client sends no more.
    _has_ended = False
    # The one whose answer is being made; `cycle` is the last that has arrived.
    _answering: Cycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._waiting: deque[Cycle] = deque()
        self._be_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits for this connection."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if self._answering is not None:
            self._answering.gone()
        # They know this connection: knots that only the collector would untie, and it seldom comes.
        self._answering = None
        self.cycle = cast("RequestResponseCycle", None)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        """Read on, as far as requests may wait."""
        if self._refusal is None:
            self._unparsed += data
            self._parse()

    def _parse(self) -> None:
        """Parse what has arrived; refuse what completes nothing and grows beyond the limit."""
        while self._unparsed and len(self._waiting) < MOST_WAITING:
            piece, self._unparsed = self._unparsed[:PIECE_BYTES], self._unparsed[PIECE_BYTES:]
            self._unread_bytes += len(piece)
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._unparsed = self._head_without_upgrade() + piece[upgrade.args[0] :] + self._unparsed
            except httptools.HttpParserError:
                self.logger.warning(_NO_HTTP)
                self._refuse(
                    HeadTooLarge(_TOO_LARGE) if self._head_bytes > MAX_HEAD_BYTES else InvalidRequest(_NO_HTTP)
                )
            if self._unread_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(HeadTooLarge(_TOO_LARGE))
        self.flow.is_behind = bool(self._unparsed)
        if self._unparsed:
            self.flow.pause_reading()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Tell whether to go on: with what is complete, unless it wants to know of a client's leaving.

        Nearly all who send no more have left; who only half closes its connection cannot be told from them.
        """
        if self._waiting and self._waiting[-1].more_body:
            self._waiting.pop()
        answering = self._answering
        if answering is None or answering.more_body or answering.is_watched:
            return False
        self._has_ended = answering.has_ended = True
        return True

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
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            # The parser would leave its body out: `data_received` has it read once more.
            return
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
            waits_for_100=self.expect_100_continue and http_version != "1.0",
            always=self.server_state.default_headers,
            on_response=self.on_response_complete,
        )
        self.cycle = cast("RequestResponseCycle", cycle)
        if before is None or before.response_complete:
            self._answer(cycle)
        else:
            self._waiting.append(cycle)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, which has its own limit."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread_bytes = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    # --- Between requests -----------------------------------------------------

    def on_response_complete(self) -> None:
        """Go on with the next request that has arrived, or wait for one."""
        self._answering = None
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._be_idle()
            return
        if self._waiting:
            self._answer(self._waiting.popleft())
            self._parse()
            self.flow.resume_reading()
            return
        self.flow.resume_reading()
        self._be_idle()
        if self._refusal is not None:
            self._say(self._refusal)
        elif self._has_ended:
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that has asked nothing for long, or takes nothing of its last answer."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_again_in(left)
            return
        before, self._unsent_bytes = self._unsent_bytes, self.transport.get_write_buffer_size()
        if self._unsent_bytes and self._unsent_bytes != before:
            self._look_again_in(self.timeout_keep_alive)
        else:
            self.transport.abort()

    def _be_idle(self) -> None:
        self._idle_since = self.loop.time()
        # One that is set finds out by itself; setting it anew for every request costs more.
        if self.timeout_keep_alive_task is None:
            self._look_again_in(self.timeout_keep_alive)

    def _look_again_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _answer(self, cycle: Cycle) -> None:
        self._idle_since = None
        self._answering = cycle
        cycle.has_ended = self._has_ended
        task = self.loop.create_task(cycle.run(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _head_without_upgrade(self) -> bytes:
        """Return the head of the request that asks for another protocol, without that, for a new parser."""
        parser, self.parser = self.parser, httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        line = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, parser.get_http_version().encode("ascii"))
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join([line, *lines, b"\r\n"])

    # --- Refusals -------------------------------------------------------------

    def _count(self, size: int) -> None:
        self._unread_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            # Ends the parser.
            raise HeadTooLarge(_TOO_LARGE)

    def _refuse(self, error: GatewayError) -> None:
        """Refuse what cannot be read, after the answers that are due; one that has begun is cut."""
        self._unparsed = b""
        if self._waiting and self._waiting[-1].more_body:
            self._waiting.pop()
        answering = self._answering
        if answering is None or (answering.more_body and not answering.response_started):
            self._say(error)
        elif answering.response_started:
            self.transport.close()
        else:
            self._refusal = error

    def _say(self, error: GatewayError) -> None:
        body = error.encode()
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
