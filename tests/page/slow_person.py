"""A browser that reads slowly, or no more, at the level of its websocket."""

import json
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp

# Little is held on the way, so that what is not read piles up at the page.
RECEIVE_BUFFER_BYTES = 4096


def packets(question: str, session_id: str) -> list[str]:
    """Return what a page sends: who it is, that it is connected, and a question."""
    message = {
        "id": str(uuid.uuid4()),
        "name": "user",
        "type": "user_message",
        "output": question,
        "createdAt": "2026-11-30T00:00:00.000Z",
    }
    return [
        "40" + json.dumps({"sessionId": session_id, "clientType": "webapp", "userEnv": "{}"}),
        '42["connection_successful"]',
        "42" + json.dumps(["client_message", {"message": message, "fileReferences": []}]),
    ]


@asynccontextmanager
async def slow_person(
    url: str, question: str, headers: dict[str, str], session_id: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Ask and leave the answer unread; gives the websocket."""
    address = f"ws://{urlsplit(url).netloc}/ws/socket.io/?EIO=4&transport=websocket"
    connector = aiohttp.TCPConnector(socket_factory=_small_socket)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.ws_connect(address, headers=headers, max_msg_size=0) as websocket,
    ):
        await websocket.receive()
        connect, *messages = packets(question, session_id)
        await websocket.send_str(connect)
        await websocket.receive()
        for message in messages:
            await websocket.send_str(message)
        yield websocket


def _small_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that takes little at a time."""
    made = socket.socket(address[0], address[1], address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return made
