"""A way to nginx from another address: a browser cannot choose its own."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

CHUNK_BYTES = 65_536


@contextlib.contextmanager
def relay(port: int, address: str) -> Iterator[str]:
    """Pass each connection on to a port of this host, from `address`; gives the URL at which it listens."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        connections.add(task)
        task.add_done_callback(connections.discard)
        upstream = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        try:
            await asyncio.gather(_pass(reader, upstream[1]), _pass(upstream[0], writer))
        finally:
            upstream[1].close()
            writer.close()

    async def stop(server: asyncio.Server) -> None:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0), loop).result()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(stop(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
