"""HTTP/1.1 with an engine: a connection carries one answer at a time, its bytes taken as they come.

A protocol with what the relay needs and nothing else; a general client costs a generation more CPU time than the rest
of the gateway (docs/adr/0019). The grammar is httptools' (llhttp), as on the server's side.
"""

import asyncio
import logging
import select
from collections.abc import Callable

import httptools

from gateway.errors import GatewayError, UpstreamBroken, UpstreamInvalidResponse

# What has arrived and nobody has taken yet; beyond it the engine has to wait.
MOST_UNREAD_BYTES = 262_144
# A head, and what else a parser keeps until it is complete.
MAX_HEAD_BYTES = 65_536
_log = logging.getLogger("gateway.upstreams")
# Takes what has arrived, or tells that it does not; called by the loop, so it cannot wait.
PassOn = Callable[[bytes], bool]
_FIRST_FINAL_STATUS = 200


class Connection(asyncio.Protocol):
    """A connection to one engine; `ask` sends a request, `read` takes the answer's body, `close` ends the exchange.

    Closing before the answer's end drops the connection, which aborts the engine's work.
    """

    def __init__(self, give_back: Callable[["Connection"], None]) -> None:
        self._give_back = give_back
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._pass_on: PassOn | None = None
        self._unread: list[bytes] = []
        self._is_paused = False
        self._arrivals = select.poll()
        self.is_lost = False
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._parser: httptools.HttpResponseParser | None = None
        self._vain_bytes = 0
        self._unread_bytes = 0
        self._is_complete = False
        self._stays = False
        self._is_spoilt = False
        self._fault: Callable[[], GatewayError] | None = None

    async def ask(self, request: bytes) -> None:
        """Send a whole request and wait for the answer's head; `status` and `headers` are its then.

        Raises UpstreamBroken and UpstreamInvalidResponse.
        """
        self._begin()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        while not self.status:
            if self._fault:
                raise self._fault()
            await self._wait()

    async def read(self, pass_on: PassOn | None = None) -> bytes:
        """Return what has arrived of the body, waiting for the first of it; empty at the end. Raises UpstreamBroken.

        As long as it waits, what arrives is offered to `pass_on`, and returned only if that does not take it: waking a
        task costs more than all else that a piece of a stream needs.
        """
        unread = self._unread
        while not unread:
            if self._fault:
                raise self._fault()
            if self._is_complete:
                return b""
            await self._wait(pass_on)
        data = unread[0] if len(unread) == 1 else b"".join(unread)
        unread.clear()
        self._unread_bytes = 0
        if self._is_paused and not self.is_lost:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    @property
    def is_read(self) -> bool:
        """Whether the answer has come whole and all of it was read."""
        return self._is_complete and not self._unread

    @property
    def is_quiet(self) -> bool:
        """Whether it can take a request: the engine has not closed it, though the loop may not know yet.

        A POST that reaches a closed connection is lost, and must not be sent twice.
        """
        return not self.is_lost and not self._arrivals.poll(0)

    def close(self) -> None:
        """Give the connection back if the answer has come whole, else drop it."""
        self._parser = None
        if not self._stays or self._is_spoilt or self.is_lost or self._unread:
            self.drop()
        self._give_back(self)

    def drop(self) -> None:
        """End the connection at once, whatever is on its way."""
        self.is_lost = True
        self._unread.clear()
        self._transport.abort()

    async def _wait(self, pass_on: PassOn | None = None) -> None:
        self._pass_on = pass_on
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = self._pass_on = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- What the transport tells ---------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._arrivals.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLRDHUP)

    def connection_lost(self, exc: Exception | None) -> None:
        """End an answer that has no length of its own; any other is broken."""
        self.is_lost = True
        if self.status and exc is None and self._ends_with_connection:
            self._is_complete = True
        elif not self._is_complete:
            self._fail(_broken)
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        if self._parser is None or self._fault:
            # Nothing was asked for: whatever this belongs to, the next answer is not to begin with it.
            self.drop()
            return
        self._vain_bytes += len(data)
        try:
            self._parser.feed_data(data)
            is_sound = self._vain_bytes <= MAX_HEAD_BYTES
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            is_sound = False
        if not is_sound:
            self._fail(_broken if self.status else _invalid)
        if self._is_passed_on():
            return
        if self._unread_bytes > MOST_UNREAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _is_passed_on(self) -> bool:
        """Offer what has arrived to whoever passes it on; tell whether there is nothing left to wake a reader for."""
        if self._pass_on is None or self._waiter is None or self._waiter.done() or self._fault or not self._unread:
            return False
        try:
            is_taken = self._pass_on(self._unread[0] if len(self._unread) == 1 else b"".join(self._unread))
        except Exception:  # noqa: BLE001  (logged; the reader meets it too, and answers for it)
            _log.exception("a piece could not be passed on")
            return False
        if not is_taken:
            return False
        self._unread.clear()
        self._unread_bytes = 0
        return not self._is_complete

    @property
    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self.headers and b"transfer-encoding" not in self.headers

    def _fail(self, fault: Callable[[], GatewayError]) -> None:
        if not self._fault and not self._is_complete:
            self._fault = fault
        self._is_spoilt = True

    # --- What the parser tells ------------------------------------------------

    def on_message_begin(self) -> None:
        """Note an answer to nothing, behind the one that was asked for."""
        self._is_spoilt = self._is_spoilt or self._is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, the first of its name."""
        if not self.status:
            self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        """Have the head, unless it is that of a 1xx before the answer."""
        self._vain_bytes = 0
        if self._is_complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS:
            self.status = status
        else:
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._vain_bytes = 0
        if not self._is_complete:
            self._unread.append(body)
            self._unread_bytes += len(body)

    def on_message_complete(self) -> None:
        """Have the whole answer, unless it was a 1xx before it."""
        self._vain_bytes = 0
        if self.status and self._parser is not None and not self._is_complete:
            self._is_complete = True
            # Asked now: the parser forgets it with the message.
            self._stays = self._parser.should_keep_alive()


# Made where they are raised: an error knows the frames it has passed, and must not be known by what those know.
def _broken() -> GatewayError:
    return UpstreamBroken("The engine closed the connection before its answer was complete. Try again.")


def _invalid() -> GatewayError:
    return UpstreamInvalidResponse("The engine sent something that is no valid answer. Try again.")
