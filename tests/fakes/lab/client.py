"""A bare HTTP client: one request a connection, every byte kept, so that nothing is smoothed over."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 15.0


@dataclass
class Answer:
    """An answer as it came; `complete` is False if the connection ended before its framing said so."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    complete: bool = False
    seconds: float = 0.0

    def header(self, name: str) -> str | None:
        """Return the first header of that name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class Conversation:
    """A request that was sent and whose answer may be read, or left."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._sent_at = time.monotonic()

    async def answer(self, timeout_seconds: float = ANSWER_SECONDS) -> Answer:
        """Return the answer; what is missing of it when time runs out or the connection ends stays missing."""
        answer = Answer()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._read_head(answer)
                await self._read_body(answer)
                answer.complete = True
        except (asyncio.IncompleteReadError, TimeoutError, OSError, ValueError, IndexError):
            pass
        finally:
            answer.seconds = time.monotonic() - self._sent_at
            self.leave()
        return answer

    def leave(self) -> None:
        """Close the connection, whatever is still on its way."""
        self.writer.close()

    async def _read_head(self, answer: Answer) -> None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        answer.status = int(first.split(" ")[1])
        answer.headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    async def _read_body(self, answer: Answer) -> None:
        if answer.header("transfer-encoding") is None:
            answer.body = await self.reader.readexactly(int(answer.header("content-length") or "0"))
            return
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            answer.body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)


async def send(url: str, path: str, body: object = None) -> Conversation:
    """Send a GET, or with a body a POST of its JSON."""
    target = urlsplit(url)
    payload = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: {target.netloc}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(target.hostname, target.port)
    writer.write(head.encode() + payload)
    await writer.drain()
    return Conversation(reader, writer)


async def ask(url: str, path: str, body: object = None) -> Answer:
    """Send and return the whole answer."""
    return await (await send(url, path, body)).answer()


async def chat(url: str, model: str, *, stream: bool) -> Conversation:
    """Send a chat request."""
    body = {"model": model, "messages": [{"role": "user", "content": "你好"}], "stream": stream}
    return await send(url, "/v1/chat/completions", body)
