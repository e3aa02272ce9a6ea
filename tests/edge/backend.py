"""Small real HTTP servers that stand behind nginx in these tests."""

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY_LIMIT_BYTES = 64 * 2**20
CLOSE_TIMEOUT_SECONDS = 1.0


class Backend:
    """Records every request; answers with its name until a test gives it another handler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[web.Request] = []
        self.connections: set[object] = set()
        self.handler: Handler = self._say_name

    async def _say_name(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        return web.json_response({"backend": self.name})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record and answer one request."""
        self.seen.append(request)
        self.connections.add(request.transport.get_extra_info("peername") if request.transport else None)
        return await self.handler(request)

    @property
    def paths(self) -> list[str]:
        """The request targets as they came, queries included."""
        return [request.raw_path for request in self.seen]


@contextlib.asynccontextmanager
async def serve(backend: Backend, port: int) -> AsyncIterator[Backend]:
    """Serve `backend` on a port of the loopback."""
    app = web.Application(client_max_size=BODY_LIMIT_BYTES)
    app.router.add_route("*", "/{path:.*}", backend.handle)
    # A handler is cancelled when its client leaves, so that a test can see it.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=CLOSE_TIMEOUT_SECONDS, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    try:
        yield backend
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def serve_until_closed(port: int, parts: list[bytes], interval_seconds: float) -> AsyncIterator[None]:
    """Answer with `parts` and no framing but the end of the connection, where a buffering proxy waits longest."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for part in parts:
            writer.write(part)
            await asyncio.sleep(interval_seconds)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        yield


@contextlib.asynccontextmanager
async def serve_then_reset(port: int, answers: int) -> AsyncIterator[list[bytes]]:
    """Answer `answers` requests in full, reset the connection on any further one; yields the request lines."""
    lines: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                lines.append(head.splitlines()[0])
                if len(lines) > answers:
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        linger_zero = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_zero)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        yield lines
