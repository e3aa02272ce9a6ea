"""The load: a few streams that ask on and on, no more in a minute than they may."""

import asyncio
import itertools
import time

from ops.acceptance.asking import QUESTIONS, Asker, Reply

PAUSE_AFTER_FAULT_SECONDS = 1.0


class Load:
    """Asks from so many streams until it is cancelled; `take` returns what came since the last time."""

    def __init__(self, asker: Asker, streams: int, per_minute: float) -> None:
        self._asker = asker
        self._streams = streams
        self._gap_seconds = 60.0 / per_minute
        self._next_at = 0.0
        self._questions = itertools.cycle(QUESTIONS)
        self._replies: list[Reply] = []

    def take(self) -> list[Reply]:
        """Return the replies since the last call."""
        replies, self._replies = self._replies, []
        return replies

    async def run(self) -> None:
        """Ask until cancelled."""
        self._next_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._streams):
                group.create_task(self._stream())

    async def _stream(self) -> None:
        while True:
            # All streams share the pace: each takes the next free moment.
            at = max(self._next_at, time.monotonic())
            self._next_at = at + self._gap_seconds
            await asyncio.sleep(at - time.monotonic())
            reply = await self._asker.ask(next(self._questions))
            self._replies.append(reply)
            if reply.fault:
                await asyncio.sleep(PAUSE_AFTER_FAULT_SECONDS)
