"""Bytes to nginx and back, without a client library that would tidy them."""

import asyncio

from tests.edge.server import Edge

EXCHANGE_TIMEOUT_SECONDS = 5.0


async def raw_exchange(edge: Edge, request: bytes) -> bytes:
    """Send a request as it is, and return all that comes back until nginx closes."""
    async with asyncio.timeout(EXCHANGE_TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer
