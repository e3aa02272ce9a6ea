"""A person at the chat page, at the level of its websocket, with an address of their own."""

import asyncio
import uuid
from types import TracebackType
from typing import Any, Self

import aiohttp
import socketio

ANSWER_TIMEOUT_SECONDS = 60.0


class Person:
    """Opens the page's socket from `address`; what the page would show is in `shown`, by the id of each message.

    How often it was shown a conversation as a whole is counted in `threads_shown`. Who has the `session_id` of another
    is the same page, which has lost its connection; who has its `thread_id` is the page loaded anew. With `polls` it
    begins without a websocket, as a browser does.
    """

    def __init__(
        self,
        url: str,
        address: str,
        headers: dict[str, str] | None = None,
        *,
        base_path: str = "",
        session_id: str = "",
        thread_id: str = "",
        polls: bool = False,
    ) -> None:
        self._url = url
        self._base_path = base_path
        self._address = address
        self._headers = headers or {}
        self._transports = ["polling", "websocket"] if polls else ["websocket"]
        self.session_id = session_id or str(uuid.uuid4())
        self._idle = asyncio.Event()
        self.thread_id = thread_id
        self.shown: dict[str, str] = {}
        self.threads_shown = 0
        self.told_to_scripts: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(local_addr=(self._address, 0))
        # A jar that takes the cookies of a host without a name, as browsers do.
        self._http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True))
        self._socket = socketio.AsyncClient(
            http_session=self._http, reconnection=False, websocket_extra_options={"max_msg_size": 0}
        )
        self._socket.on("new_message", self._show)
        self._socket.on("update_message", self._show)
        self._socket.on("stream_start", self._show)
        self._socket.on("stream_token", self._add)
        self._socket.on("resume_thread", self._show_thread)
        self._socket.on("window_message", self.told_to_scripts.append)
        self._socket.on("first_interaction", self._name_thread)
        self._socket.on("task_end", lambda *_: self._idle.set())
        await self._socket.connect(
            self._url,
            headers=dict(self._headers),  # it takes the cookies out
            auth={
                "sessionId": self.session_id,
                "clientType": "webapp",
                "userEnv": "{}",
                "threadId": self.thread_id,
            },
            transports=self._transports,
            socketio_path=f"{self._base_path}/ws/socket.io",
            wait_timeout=ANSWER_TIMEOUT_SECONDS,
        )
        await self._socket.emit("connection_successful")
        await self.done()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.emit("clear_session")
        await self.close_tab()

    async def close_tab(self) -> None:
        """Go without a word, as a browser does."""
        await self._socket.disconnect()
        await self._http.close()

    async def ask(self, question: str) -> str:
        """Send a question and return what the page shows for it: the answer, or why there is none."""
        message_id = await self.send(question)
        await self.done()
        self.shown.pop(message_id, None)
        return "\n".join(text for text in self.shown.values() if text)

    async def send(self, question: str, message_id: str = "") -> str:
        """Send a question without waiting for its answer; return the id of the message."""
        self.shown.clear()
        self._idle.clear()
        message = {
            "id": message_id or str(uuid.uuid4()),
            "name": "user",
            "type": "user_message",
            "output": question,
            "createdAt": "2026-11-30T00:00:00.000Z",
        }
        await self._socket.emit("client_message", {"message": message, "fileReferences": []})
        return message["id"]

    async def done(self) -> None:
        """Wait until nothing is under way."""
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await self._idle.wait()

    async def stop(self) -> None:
        """Press the button that stops an answer."""
        await self._socket.emit("stop")

    async def say(self, message: dict[str, Any]) -> None:
        """Say what a script of the page says."""
        await self._socket.emit("window_message", message)

    def _name_thread(self, interaction: dict[str, Any]) -> None:
        self.thread_id = interaction["thread_id"]

    def _show_thread(self, thread: dict[str, Any]) -> None:
        self.threads_shown += 1
        self.shown = {step["id"]: step["output"] for step in thread["steps"] if step["type"] != "run"}

    def _show(self, step: dict[str, Any]) -> None:
        self.shown[step["id"]] = step["output"]

    def _add(self, token: dict[str, Any]) -> None:
        text = token["token"]
        self.shown[token["id"]] = text if token["isSequence"] else self.shown.get(token["id"], "") + text
