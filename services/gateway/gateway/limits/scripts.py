"""Running scripts in Valkey over one connection: what is called while a batch is on its way leaves in the next one."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# One takes some milliseconds to write and read.
MAX_BATCH = 64
# An answer that has come while our own loop was busy is not late; reading it takes some turns of the loop.
_LAST_TURNS = 10
Argument = str | int | float
_Call = tuple[str, Sequence[str], Sequence[Argument], "asyncio.Future[Any]"]


class ValkeyAwayError(Exception):
    """Valkey did not answer in time, or not at all; the message is the kind of the fault."""


class Scripts:
    """Valkey as a set of named scripts; one that is silent for `seconds` is away: all calls raise ValkeyAwayError."""

    def __init__(self, url: str, scripts: Mapping[str, str], seconds: float) -> None:
        self._client = Redis.from_url(url, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0))
        self._texts = scripts
        self._hashes = {name: hashlib.sha1(text.encode()).hexdigest() for name, text in scripts.items()}  # noqa: S324
        self._seconds = seconds
        self._waiting: list[_Call] = []
        self._sender: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Teach the server the scripts, which it forgets when it ends."""
        pipeline = self._client.pipeline(transaction=False)
        for text in self._texts.values():
            pipeline.script_load(text)
        for answer in await self._execute(pipeline, len(self._texts)):
            if isinstance(answer, BaseException):
                raise ValkeyAwayError(type(answer).__name__)

    async def run(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Return a script's answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._hashes[name], keys, arguments, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return await answer

    async def close(self) -> None:
        """Close the connection; calls that are on their way are lost."""
        if self._sender and not self._sender.done():
            self._sender.cancel()
            await asyncio.wait([self._sender])
        await self._client.aclose()

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            pipeline = self._client.pipeline(transaction=False)
            for script, keys, arguments, _ in batch:
                pipeline.evalsha(script, len(keys), *keys, *arguments)
            answers = await self._execute(pipeline, len(batch))
            if isinstance(answers[0], BaseException):
                # Whoever waits behind would only find the same.
                batch, self._waiting = batch + self._waiting, []
                answers = [answers[0]] * len(batch)
            for (*_, waiting), answer in zip(batch, answers, strict=True):
                if waiting.done():
                    continue
                if isinstance(answer, BaseException):
                    waiting.set_exception(ValkeyAwayError(type(answer).__name__))
                else:
                    waiting.set_result(answer)

    async def _execute(self, pipeline: Pipeline, number: int) -> list[Any]:
        """Return the answers to what is in the pipeline, or as often the error that there was instead."""
        task = asyncio.ensure_future(pipeline.execute(raise_on_error=False))
        try:
            await asyncio.wait([task], timeout=self._seconds)
            for _ in range(_LAST_TURNS):
                if not task.done():
                    await asyncio.sleep(0)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            return [TimeoutError()] * number
        if error := task.exception():
            return [error] * number
        answers: list[Any] = task.result()
        return answers
