"""HTTP with engines: one session for the process, its own timeouts, bytes as they come."""

import asyncio
import io
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp

from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamTimeout
from gateway.upstreams.engine import Engine
from gateway.upstreams.faults import CLIENT_ERRORS, translate
from gateway.upstreams.launchers import Launcher

# uvicorn under vLLM closes an idle connection after 5 s; a request on a connection that is just being
# closed would be lost, and a POST must not be sent twice.
KEEPALIVE_SECONDS = 3
# A recreated container has another address within seconds.
DNS_CACHE_SECONDS = 5
# aiohttp warns of larger bodies given as bytes, since it would write them in one go.
LARGE_BODY_BYTES = 1_048_576
RETRY_AFTER_DIGITS = 4


class Answer:
    """An engine's answer: the head is there, the body comes as it is read.

    Whoever holds it must `close` it. Closing before the end aborts the engine's work; reading to the end
    gives the connection back for the next request. Reads raise GatewayError.
    """

    __slots__ = ("_engine", "_lost", "_response")

    def __init__(self, response: aiohttp.ClientResponse, engine: Engine) -> None:
        self._response = response
        self._engine = engine
        self._lost: asyncio.Future[None] | None = None
        # None when a short body has arrived with its head: the connection is free again.
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            self._lost = connection.protocol.closed
            if self._lost is None:
                self._end_reading()
            else:
                self._lost.add_done_callback(self._end_reading)
                # One future for all the answers of a connection; somebody must take its exception, only once.
                self._lost.remove_done_callback(_take_exception)
                self._lost.add_done_callback(_take_exception)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def content_type(self) -> str:
        """The media type with its parameters, as it came."""
        return self._response.headers.get("Content-Type", "")

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.content_type.partition(";")[0].strip().lower() == "text/event-stream"

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed although identity was asked for."""
        return self._response.headers.get("Content-Encoding", "identity").lower() != "identity"

    @property
    def retry_after(self) -> int | None:
        """The Retry-After header in seconds, if it is a sane number."""
        value = self._response.headers.get("Retry-After", "")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= RETRY_AFTER_DIGITS else None

    async def read(self) -> bytes:
        """Return what has arrived, waiting for the first of it; empty at the end."""
        try:
            chunk = await self._response.content.readany()
        except CLIENT_ERRORS as error:
            raise translate(error) from error
        except RuntimeError as error:
            # aiohttp's word for a connection that was lost a moment ago.
            if self._lost is None or not self._lost.done():
                raise
            raise translate(aiohttp.ClientPayloadError()) from error
        if chunk:
            self._engine.chunks_received += 1
        return chunk

    async def read_whole(self, limit_bytes: int) -> bytes:
        """Return the whole body; raise UpstreamInvalidResponse if it is longer than the limit."""
        chunks, size = [], 0
        while chunk := await self.read():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit_bytes:
                raise UpstreamInvalidResponse("The engine's answer is too large. Ask for less.")
        return b"".join(chunks)

    async def finish(self, timeout_seconds: float) -> None:
        """Read what little may follow, so that the connection can be used again; give up silently."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while await self.read():
                    pass
        except (GatewayError, TimeoutError):
            # The answer was complete; only the connection is lost, and `close` sees to that.
            return

    def close(self) -> None:
        """End it: the connection is closed unless the body was read to its end."""
        if self._lost is not None:
            self._lost.remove_done_callback(self._end_reading)
        self._response.close()

    def _end_reading(self, _lost: asyncio.Future[None] | None = None) -> None:
        """Fail the reads of a connection that is lost: aiohttp 3.14 forgets them when the body's framing is broken."""
        content = self._response.content
        if content.exception() is None and not content.is_eof():
            content.set_exception(aiohttp.ClientPayloadError())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _take_exception(lost: asyncio.Future[None]) -> None:
    """Take note of why a connection was lost: asyncio would log an exception that nobody has asked for."""
    if not lost.cancelled():
        lost.exception()


async def _read(content: aiohttp.StreamReader, limit_bytes: int) -> bytes:
    """Read to the end or the limit; one read of aiohttp's brings what has arrived, which is not all of a long page."""
    chunks = []
    while limit_bytes > 0 and (chunk := await content.read(limit_bytes)):
        chunks.append(chunk)
        limit_bytes -= len(chunk)
    return b"".join(chunks)


class EngineClient:
    """Calls engines; `start` it inside the running loop, `close` it before the loop ends."""

    def __init__(self, connect_timeout_seconds: float) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._started: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the session."""
        self._started = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEPALIVE_SECONDS, ttl_dns_cache=DNS_CACHE_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"Accept-Encoding": "identity", "User-Agent": "ernie-gateway"},
        )

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._started is None:
            raise RuntimeError("the client has not been started")
        return self._started

    async def post(self, engine: Engine, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a JSON body and return the answer's head.

        Raises UpstreamUnavailable only if nothing was sent. Cancelling closes the connection, which aborts
        the engine's work. Sets no timeout but the one for connecting.
        """
        try:
            response = await self._session.post(
                engine.url(path),
                data=body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
                headers={"Content-Type": "application/json", **headers},
                allow_redirects=False,
            )
        except CLIENT_ERRORS as error:
            raise translate(error) from error
        return Answer(response, engine)

    async def get(
        self, engine: Engine | Launcher, path: str, *, timeout_seconds: float, limit_bytes: int
    ) -> tuple[int, bytes]:
        """Return the status and at most `limit_bytes` of the body of an answer to a look."""
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._session.get(engine.url(path), allow_redirects=False) as response,
            ):
                return response.status, await _read(response.content, limit_bytes)
        except aiohttp.ConnectionTimeoutError as error:
            # It is a TimeoutError too, but an engine that takes no connection is not just slow.
            raise translate(error) from error
        except TimeoutError as error:
            raise UpstreamTimeout(f"The engine did not answer {path} in {timeout_seconds:g} s.") from error
        except CLIENT_ERRORS as error:
            raise translate(error) from error
        except RuntimeError as error:
            # As in `Answer.read`.
            raise translate(aiohttp.ClientPayloadError()) from error

    @property
    def open_connections(self) -> int:
        """Connections that a request holds now."""
        connector = self._session.connector
        return len(connector._acquired) if connector else 0  # noqa: SLF001  (there is no public count)

    async def close(self) -> None:
        """Close every connection."""
        if self._started is not None:
            await self._started.close()
