"""HTTP with engines and launchers: a few connections each, bytes as they come."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamTimeout
from gateway.upstreams.connection import Connection, PassOn
from gateway.upstreams.connections import Connections
from gateway.upstreams.engine import Engine
from gateway.upstreams.launchers import Launcher

RETRY_AFTER_DIGITS = 4
_ALWAYS = "Accept-Encoding: identity\r\nUser-Agent: ernie-gateway\r\n"


class Answer:
    """An engine's answer: the head is there, the body comes as it is read.

    Whoever holds it must `close` it. Closing before the end aborts the engine's work; reading to the end
    gives the connection back for the next request. Reads raise GatewayError.
    """

    __slots__ = ("_connection", "_engine")

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self._connection = connection
        self._engine = engine

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._connection.status

    @property
    def content_type(self) -> str:
        """The media type with its parameters, as it came."""
        return self._header(b"content-type")

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.content_type.partition(";")[0].strip().lower() == "text/event-stream"

    @property
    def is_encoded(self) -> bool:
        """Whether the body is compressed although identity was asked for."""
        return self._header(b"content-encoding").lower() not in {"", "identity"}

    @property
    def retry_after(self) -> int | None:
        """The Retry-After header in seconds, if it is a sane number."""
        value = self._header(b"retry-after")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= RETRY_AFTER_DIGITS else None

    async def read(self, pass_on: PassOn | None = None) -> bytes:
        """Return what has arrived, waiting for the first of it; empty at the end.

        As long as it waits, what arrives is offered to `pass_on`, and returned only if that does not take it.
        """
        chunk = await self._connection.read(pass_on)
        if chunk:
            self.note_received()
        return chunk

    def note_received(self) -> None:
        """Count a chunk as the engine's progress, which readiness watches; `pass_on` does for those that it takes."""
        self._engine.chunks_received += 1

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
        if self._connection.is_read:
            return
        try:
            async with asyncio.timeout(timeout_seconds):
                while await self.read():
                    pass
        except (GatewayError, TimeoutError):
            # The answer was complete; only the connection is lost, and `close` sees to that.
            return

    def close(self) -> None:
        """End it: the connection is closed unless the body was read to its end."""
        self._connection.close()

    def _header(self, name: bytes) -> str:
        return self._connection.headers.get(name, b"").decode("latin-1")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EngineClient:
    """Calls engines and launchers; `close` it before the loop ends."""

    def __init__(self, connect_timeout_seconds: float) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._connections: WeakKeyDictionary[Engine | Launcher, Connections] = WeakKeyDictionary()

    async def post(self, engine: Engine, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a JSON body and return the answer's head.

        Raises UpstreamUnavailable only if nothing was sent. Cancelling closes the connection, which aborts
        the engine's work. Sets no timeout but the one for connecting.
        """
        lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return Answer(await self._ask(engine, "POST", path, fields, body), engine)

    async def get(
        self, peer: Engine | Launcher, path: str, *, timeout_seconds: float, limit_bytes: int
    ) -> tuple[int, bytes]:
        """Return the status and at most `limit_bytes` of the body of an answer to a look."""
        try:
            async with asyncio.timeout(timeout_seconds):
                with closing(await self._ask(peer, "GET", path)) as connection:
                    return connection.status, await _read(connection, limit_bytes)
        except TimeoutError:
            raise UpstreamTimeout(f"The engine did not answer {path} in {timeout_seconds:g} s.") from None

    @property
    def open_connections(self) -> int:
        """Connections that a request holds now."""
        return sum(connections.taken for connections in self._connections.values())

    def close(self) -> None:
        """Close every connection that is free; those in use belong to their requests."""
        for connections in self._connections.values():
            connections.close()

    async def _ask(
        self, peer: Engine | Launcher, method: str, path: str, fields: str = "", body: bytes = b""
    ) -> Connection:
        connections = self._connections_to(peer)
        # One that is free may be closed at this very moment; a look must not take that for the engine's fault.
        connection = await connections.take(new=method == "GET")
        head = f"{method} {path} HTTP/1.1\r\nHost: {connections.authority}\r\n{_ALWAYS}{fields}\r\n"
        try:
            await connection.ask(head.encode("ascii") + body)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connections_to(self, peer: Engine | Launcher) -> Connections:
        connections = self._connections.get(peer)
        if connections is None:
            connections = self._connections[peer] = Connections(peer.base_url, self._connect_timeout_seconds)
        return connections


async def _read(connection: Connection, limit_bytes: int) -> bytes:
    """Read to the end or the limit; one read brings what has arrived, which is not all of a long page."""
    page = b""
    while len(page) < limit_bytes and (chunk := await connection.read()):
        page += chunk
    return page[:limit_bytes]
