"""The connections to one address; those that are free are kept for a moment."""

import asyncio
import ssl
import time
from urllib.parse import urlsplit

from gateway.errors import UpstreamUnavailable
from gateway.upstreams.connection import Connection

# uvicorn under vLLM closes an idle connection after 5 s; a request on a connection that is just being
# closed would be lost, and a POST must not be sent twice.
KEEPALIVE_SECONDS = 3.0
_UNAVAILABLE = "The engine cannot be reached. Try again in a few seconds."


class Connections:
    """Connects to one address, or takes a connection that is free."""

    def __init__(self, base_url: str, connect_timeout_seconds: float) -> None:
        url = urlsplit(base_url)
        self.authority = url.netloc
        self._host = url.hostname or ""
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._port = url.port or (80 if self._tls is None else 443)
        self._connect_timeout_seconds = connect_timeout_seconds
        self._free: list[Connection] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self.taken = 0

    async def take(self, *, new: bool = False) -> Connection:
        """Return a connection that is free, or a new one; `Connection.close` gives it back. Raises UpstreamUnavailable.

        Cancelling leaves nothing open.
        """
        self.taken += 1
        stale_before = time.monotonic() - KEEPALIVE_SECONDS
        while self._free and not new:
            connection = self._free.pop()
            if connection.idle_since > stale_before and connection.is_quiet:
                return connection
            connection.drop()
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                _, made = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._give_back), self._host, self._port, ssl=self._tls
                )
        except (OSError, TimeoutError, UnicodeError) as error:
            self.taken -= 1
            raise UpstreamUnavailable(_UNAVAILABLE) from error
        except BaseException:
            self.taken -= 1
            raise
        return made

    def close(self) -> None:
        """Drop the connections that are free."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        while self._free:
            self._free.pop().drop()

    def _give_back(self, connection: Connection) -> None:
        self.taken -= 1
        if connection.is_lost:
            return
        connection.idle_since = time.monotonic()
        self._free.append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(KEEPALIVE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Drop those that have been free for long; they are the first of the list."""
        self._sweeper = None
        stale_before = time.monotonic() - KEEPALIVE_SECONDS
        while self._free and self._free[0].idle_since <= stale_before:
            self._free.pop(0).drop()
        if self._free:
            self._sweeper = asyncio.get_running_loop().call_later(KEEPALIVE_SECONDS, self._sweep)
