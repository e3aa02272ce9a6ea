"""A way to a port of this host, from another address if need be, that can fail: a browser cannot choose its own."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

CHUNK_BYTES = 65_536


class Relay:
    """Passes each connection on. `url` is where it listens; what it does wrong it is told from another thread."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._loses_upwards: bool | None = None
        self.url = ""

    def lose(self, *, upwards: bool = True) -> None:
        """Pass nothing on that way, from or to browsers: a connection that has died and does not know it yet."""
        self._loses_upwards = upwards

    def cut(self) -> None:
        """End all connections without a word; new ones are whole."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loses_upwards = None

    @contextlib.contextmanager
    def running(self) -> Iterator["Relay"]:
        """Listen, in a thread of its own."""
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(server.close)
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Cut while its other half is still being made, too; asyncio complains of a handler that ends cancelled.
        with contextlib.closing(writer), contextlib.suppress(asyncio.CancelledError):
            upstream = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(self._address, 0))
            with contextlib.closing(upstream[1]):
                await asyncio.gather(self._pass(reader, upstream[1], upwards=True), self._pass(upstream[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, upwards: bool = False) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._loses_upwards is not upwards:
                    writer.write(chunk)
                    await writer.drain()
            writer.write_eof()

    async def _end(self) -> None:
        ending = list(self._connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


@contextlib.contextmanager
def relay(port: int, address: str = "127.0.0.1") -> Iterator[Relay]:
    """Pass each connection on to a port of this host, from `address`."""
    with Relay(port, address).running() as running:
        yield running
