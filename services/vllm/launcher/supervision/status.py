"""GET /status: the board for the gateway and for people, from the launcher's first second on.

A thread with an event loop; every connection is for one request, is bounded in time and size, and few are held.
"""

import asyncio
import http
import http.client
import json
import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from launcher import ports
from launcher.supervision.board import Board

if TYPE_CHECKING:
    import socket

_REQUEST_SECONDS = 3.0
_HEAD_BYTES = 8_192
_CONNECTIONS = 64

log = logging.getLogger(__name__)


class StatusServer:
    """Serves a board on an address while its context is open; port 0 serves nothing."""

    def __init__(self, board: Board, host: str, port: int, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._board = board
        self._host, self._port = host, port
        self._request_seconds = request_seconds
        self._held = 0
        self._stop = asyncio.Event()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        if self._port:
            self._listener = ports.listen(self._host, self._port, "ENGINE_STATUS_PORT")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, name="status", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._loop.close()

    def _serve(self) -> None:
        self._loop.run_until_complete(self._accept())

    async def _accept(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listener, limit=_HEAD_BYTES)
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held += 1
        try:
            if self._held <= _CONNECTIONS:
                async with asyncio.timeout(self._request_seconds):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(head, self._board))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a status request was not finished", exc_info=True)
        finally:
            self._held -= 1
            writer.close()


def answer(head: bytes, board: Board) -> bytes:
    """The whole response to a request's head."""
    method, path, *_ = (*head.partition(b"\r\n")[0].split(b" "), b"", b"")
    status, body = http.HTTPStatus.OK, b""
    if path.partition(b"?")[0] != b"/status":
        status = http.HTTPStatus.NOT_FOUND
    elif method not in {b"GET", b"HEAD"}:
        status = http.HTTPStatus.METHOD_NOT_ALLOWED
    else:
        body = json.dumps(board.report()).encode()
    allow = "Allow: GET, HEAD\r\n" if status is http.HTTPStatus.METHOD_NOT_ALLOWED else ""
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\n{allow}Connection: close\r\n\r\n"
    )
    return lines.encode() + (b"" if method == b"HEAD" else body)


def fetch_status(host: str, port: int) -> str | None:
    """What a launcher that runs on this address says, as JSON; None if none does. Never by way of a proxy."""
    connection = http.client.HTTPConnection(host, port, timeout=_REQUEST_SECONDS)
    try:
        connection.request("GET", "/status")
        reply = connection.getresponse()
        return reply.read().decode() if reply.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, UnicodeDecodeError):
        return None
    finally:
        connection.close()
