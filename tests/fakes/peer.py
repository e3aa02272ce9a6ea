"""A raw TCP peer: it accepts, or does not, and then speaks no HTTP of its own accord."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Self

from tests.fakes.call import reset

# Enough to fill a backlog of 0, which holds one or two connections.
FILLERS = 4


class Connection:
    """One accepted connection; `request` is what has come so far."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.request = bytearray()
        self.spoken_to = asyncio.Event()
        self.gone = asyncio.Event()

    async def write_and_close(self, data: bytes) -> None:
        """Write once the other side has spoken, then close in order."""
        await self.spoken_to.wait()
        self.transport.write(data)
        self.transport.close()


Behaviour = Callable[[Connection], Awaitable[None]]


async def say_nothing(connection: Connection) -> None:
    """Read everything, answer nothing."""
    await connection.gone.wait()


async def close_at_once(connection: Connection) -> None:
    """Close in order without waiting for a word."""
    connection.transport.close()


async def reset_at_once(connection: Connection) -> None:
    """Reset without waiting for a word."""
    reset(connection.transport)


def write(data: bytes) -> Behaviour:
    """Return the behaviour of answering whatever comes with these bytes and closing."""

    async def behaviour(connection: Connection) -> None:
        await connection.write_and_close(data)

    return behaviour


class Peer:
    """Listens on a port of 127.0.0.1 and treats every connection alike; an asynchronous context manager."""

    def __init__(self, behaviour: Behaviour, port: int = 0, host: str = "127.0.0.1") -> None:
        self.behaviour = behaviour
        self.host = host
        self.port = port
        self.accepted: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: _Accepted(self), self.host, self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        self._listening.close()
        for connection in self.accepted:
            connection.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listening.wait_closed()

    def accept(self, connection: Connection) -> None:
        """Begin to treat a connection."""
        self.accepted.append(connection)
        task = asyncio.get_running_loop().create_task(self._treat(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _treat(self, connection: Connection) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self.behaviour(connection)


class _Accepted(asyncio.Protocol):
    """Collects what comes on one connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection = Connection(transport)
        self._peer.accept(self._connection)

    def data_received(self, data: bytes) -> None:
        self._connection.request += data
        self._connection.spoken_to.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._connection.spoken_to.set()
        self._connection.gone.set()


class DeafPort:
    """A port whose backlog is full: the system drops further handshakes without a word."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._address = (host, port)
        self._sockets: list[socket.socket] = []

    @property
    def port(self) -> int:
        """The port, once started."""
        return int(self._sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen without ever accepting, and fill the backlog."""
        deaf = socket.socket()
        self._sockets = [deaf]
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        deaf.bind(self._address)
        deaf.listen(0)
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._sockets.append(filler)

    async def stop(self) -> None:
        """Close everything."""
        for held in self._sockets:
            held.close()
