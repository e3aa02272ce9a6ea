"""A person at the chat page, at the level of its websocket, with an address of their own."""

import asyncio
import uuid
from types import TracebackType
from typing import Any, Self

import aiohttp
import socketio

ANSWER_TIMEOUT_SECONDS = 20.0


class Person:
    """Opens the page's socket from `address`; what the page would show is in `shown`, by the id of each message."""

    def __init__(self, url: str, address: str, headers: dict[str, str] | None = None, *, base_path: str = "") -> None:
        self._url = url
        self._base_path = base_path
        self._address = address
        self._headers = headers or {}
        self._session_id = str(uuid.uuid4())
        self._idle = asyncio.Event()
        self.shown: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(local_addr=(self._address, 0))
        self._http = aiohttp.ClientSession(connector=connector)
        self._socket = socketio.AsyncClient(http_session=self._http, reconnection=False)
        self._socket.on("new_message", self._show)
        self._socket.on("update_message", self._show)
        self._socket.on("stream_start", self._show)
        self._socket.on("stream_token", self._add)
        self._socket.on("task_end", lambda *_: self._idle.set())
        await self._socket.connect(
            self._url,
            headers=self._headers,
            auth={"sessionId": self._session_id, "clientType": "webapp", "userEnv": "{}"},
            transports=["websocket"],
            socketio_path=f"{self._base_path}/ws/socket.io",
        )
        await self._socket.emit("connection_successful")
        await self._done()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.emit("clear_session")
        await self._socket.disconnect()
        await self._http.close()

    async def ask(self, question: str) -> str:
        """Send a question and return what the page shows for it: the answer, or why there is none."""
        self.shown.clear()
        self._idle.clear()
        message = {
            "id": str(uuid.uuid4()),
            "name": "user",
            "type": "user_message",
            "output": question,
            "createdAt": "2026-11-30T00:00:00.000Z",
        }
        await self._socket.emit("client_message", {"message": message, "fileReferences": []})
        await self._done()
        self.shown.pop(message["id"], None)
        return "\n".join(text for text in self.shown.values() if text)

    async def _done(self) -> None:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await self._idle.wait()

    def _show(self, step: dict[str, Any]) -> None:
        self.shown[step["id"]] = step["output"]

    def _add(self, token: dict[str, Any]) -> None:
        text = token["token"]
        self.shown[token["id"]] = text if token["isSequence"] else self.shown.get(token["id"], "") + text
