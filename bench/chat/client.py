"""Browsers' worth of the page's websocket: each asks, reads what comes and notes when each token came."""

import asyncio
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import socketio

TIMEOUT_SECONDS = 120.0
STAMP = re.compile(r"\d{12,}")


@dataclass(slots=True)
class Browser:
    """One page: `delays_ns` are from a token's writing by the engine to its arrival in a frame."""

    delays_ns: list[int] = field(default_factory=list)
    frames: int = 0
    _text: str = ""
    _seen: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _socket: socketio.AsyncClient = field(default_factory=lambda: socketio.AsyncClient(reconnection=False))

    async def open(self, url: str) -> None:
        """Connect as the page does, first by polling, then by websocket."""
        self._socket.on("stream_start", self._start)
        self._socket.on("stream_token", self._take)
        self._socket.on("task_end", lambda *_: self._idle.set())
        auth = {"sessionId": str(uuid.uuid4()), "clientType": "webapp", "userEnv": "{}"}
        await self._socket.connect(url, auth=auth, socketio_path="/ws/socket.io", wait_timeout=TIMEOUT_SECONDS)
        await self._socket.emit("connection_successful")
        await self._until_idle()

    async def ask(self, question: str) -> None:
        """Ask and read the whole answer."""
        self._idle.clear()
        message = {
            "id": str(uuid.uuid4()),
            "name": "user",
            "type": "user_message",
            "output": question,
            "createdAt": "2026-11-30T00:00:00.000Z",
        }
        await self._socket.emit("client_message", {"message": message, "fileReferences": []})
        await self._until_idle()

    async def close(self) -> None:
        """Close the tab."""
        await self._socket.disconnect()

    async def _until_idle(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._idle.wait()

    def _start(self, step: dict[str, Any]) -> None:
        self._text, self._seen = "", 0
        self._note(step["output"])

    def _take(self, token: dict[str, Any]) -> None:
        if token["isSequence"]:
            self._text = ""
        self._note(token["token"])

    def _note(self, text: str) -> None:
        """Add text; each stamp that is new on the page has just arrived."""
        now = time.monotonic_ns()
        self.frames += 1
        self._text += text
        stamps = STAMP.findall(self._text)
        self.delays_ns.extend(now - int(stamp) for stamp in stamps[self._seen :])
        self._seen = len(stamps)
