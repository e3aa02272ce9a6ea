"""Asks as a client does, streamed, and keeps within what the gateway grants this client."""

import asyncio
import json
import re
import ssl
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

QUESTIONS = ("你好", "介绍一下你自己", "怎么启动这个项目", "What can you do?")
TOKENS = 64
ANSWER_SECONDS = 300
CONNECTIONS = 128
# The stack's own address is plain HTTP; loading the machine's certificates takes longer than a first token.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_WAIT = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?$")


@dataclass(frozen=True)
class Reply:
    """What one question brought; seconds from asking. `fault` is empty if all is well, `status` 0 without an answer."""

    first_token_seconds: float
    seconds: float
    tokens: int
    text: str
    status: int
    fault: str = ""

    @property
    def is_limited(self) -> bool:
        """Refused for this client's limits, not for any fault."""
        return self.status == httpx.codes.TOO_MANY_REQUESTS


class Asker:
    """One client; a context manager."""

    def __init__(self, url: str, key: str, model: str) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        self.client = httpx.AsyncClient(
            base_url=url, headers=headers, limits=limits, timeout=ANSWER_SECONDS, trust_env=False, verify=_NO_TLS
        )
        self.model = model
        self._granted: int | None = None
        self._left: int | None = None
        self._free_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.aclose()

    def body(self, question: str, tokens: int = TOKENS) -> dict[str, Any]:
        """Return a question's body, streamed, with the figures at its end."""
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def room_for(self, requests: int) -> bool:
        """Wait until so many may be asked; False if this client never may. The first question tells what it may."""
        if self._granted is None or self._left is None:
            return True
        if requests > self._granted:
            return False
        if requests > self._left:
            await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
        return True

    async def ask(self, question: str, tokens: int = TOKENS) -> Reply:
        """Ask once; never raises for what the stack does."""
        began = time.monotonic()
        try:
            async with self.client.stream("POST", "/v1/chat/completions", json=self.body(question, tokens)) as answer:
                self._note(answer.headers)
                if answer.status_code != httpx.codes.OK:
                    fault = f"{answer.status_code}: {_message(await answer.aread())}"
                    return Reply(0.0, time.monotonic() - began, 0, "", answer.status_code, fault)
                return await _read(answer, began)
        except httpx.HTTPError as error:
            return Reply(0.0, time.monotonic() - began, 0, "", 0, f"{type(error).__name__} {error}".strip())

    async def many(self, requests: int, at_once: int, tokens: int = TOKENS) -> list[Reply]:
        """Ask so often, so many at a time; in the order of asking."""
        gate = asyncio.Semaphore(at_once)

        async def one(number: int) -> Reply:
            async with gate:
                return await self.ask(QUESTIONS[number % len(QUESTIONS)], tokens)

        return await asyncio.gather(*(one(number) for number in range(requests)))

    def _note(self, headers: httpx.Headers) -> None:
        if "x-ratelimit-limit-requests" in headers:
            self._granted = int(headers["x-ratelimit-limit-requests"])
            self._left = int(headers["x-ratelimit-remaining-requests"])
            # Until all is free again: a little more than is needed, and never too little.
            self._free_at = time.monotonic() + read_wait(headers.get("x-ratelimit-reset-requests", "60s"))


def read_wait(text: str) -> float:
    """Return the seconds in a text such as 1m0s."""
    match = _WAIT.match(text)
    hours, minutes, seconds = match.groups() if match else (None, None, None)
    return 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds or 0)


async def _read(answer: httpx.Response, began: float) -> Reply:
    first, tokens, text, ended, fault = 0.0, 0, "", False, ""
    async for line in answer.aiter_lines():
        data = line.removeprefix("data: ")
        if not line.startswith("data: "):
            continue
        if data == "[DONE]":
            ended = True
            continue
        event = json.loads(data)
        if "error" in event:
            fault = f"error in the stream: {event['error'].get('code')}"
            continue
        for choice in event.get("choices") or []:
            piece = choice["delta"].get("content") or ""
            first = first or (time.monotonic() - began if piece else 0.0)
            text += piece
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    fault = fault or ("" if ended and text.strip() else "the stream ended early" if not ended else "an empty answer")
    return Reply(first, time.monotonic() - began, tokens, text, answer.status_code, fault)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "no message"
