"""Running scripts in Valkey over one connection: what is called while a batch is on its way leaves in the next one."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

MAX_BATCH = 256
Argument = str | int | float
_Call = tuple[str, Sequence[str], Sequence[Argument], "asyncio.Future[Any]"]


class ValkeyAwayError(Exception):
    """Valkey did not answer in time, or not at all; the message is the kind of the fault."""


class Scripts:
    """Valkey as a set of named scripts; every call has an answer or a ValkeyAwayError within `seconds`."""

    def __init__(self, url: str, scripts: Mapping[str, str], seconds: float) -> None:
        self._client = Redis.from_url(url, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))
        self._texts = scripts
        self._hashes = {name: hashlib.sha1(text.encode()).hexdigest() for name, text in scripts.items()}  # noqa: S324
        self._seconds = seconds
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Teach the server the scripts, which it forgets when it ends."""
        try:
            async with asyncio.timeout(self._seconds):
                for text in self._texts.values():
                    await self._client.script_load(text)
        except (RedisError, OSError, TimeoutError) as error:
            raise ValkeyAwayError(type(error).__name__) from None

    async def run(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Return a script's answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._hashes[name], keys, arguments, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except (RedisError, OSError, TimeoutError) as error:
            raise ValkeyAwayError(type(error).__name__) from None

    async def close(self) -> None:
        """Close the connection; calls that are on their way are lost."""
        if self._sender and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait([self._sender])
        await self._client.aclose()

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            answers = await self._answers_to(batch)
            for (*_, waiting), answer in zip(batch, answers, strict=True):
                if waiting.done():
                    continue
                if isinstance(answer, Exception):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(answer)

    async def _answers_to(self, batch: list[_Call]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for script, keys, arguments, _ in batch:
            pipeline.evalsha(script, len(keys), *keys, *arguments)
        try:
            async with asyncio.timeout(self._seconds):
                return await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            return [error] * len(batch)
