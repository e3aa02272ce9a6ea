"""HTTP/1.1 on a real socket, as little of it as a fake needs: requests are read, answers left to a handler."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fakes.call import Call

Handler = Callable[[Call], Awaitable[None]]


class Server:
    """Listens and hands each request to the handler, on one connection one after the other."""

    def __init__(self, handler: Handler, host: str = "127.0.0.1", port: int = 0) -> None:
        self.handler = handler
        self.host = host
        self.port = port
        self.connections = 0
        self.transports: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether it accepts connections."""
        return self._listening is not None

    async def start(self) -> None:
        """Listen, on the same port as before if it was started once."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: _Connection(self), self.host, self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        listening.close()
        for transport in list(self.transports):
            transport.abort()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()


class _Connection(asyncio.Protocol):
    """Parses requests and notices when the peer goes away."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = b""
        self._call: Call | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        if not self._server.listening:
            # Accepted while the server was being closed.
            self._transport.abort()
            return
        self._server.connections += 1
        self._server.transports.add(transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._server.transports.discard(self._transport)
        if self._call is not None:
            self._call.note_disconnected()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(next((value for name, value in headers if name.lower() == "content-length"), "0"))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = first.split(" ")
        self._call = Call(method, path, headers, rest[:length], self._transport)
        self._task = asyncio.get_running_loop().create_task(self._serve(self._call))
        self._server.tasks.add(self._task)
        self._task.add_done_callback(self._server.tasks.discard)

    async def _serve(self, call: Call) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._server.handler(call)
            finally:
                call.note_ended()
