"""The time that a refusal asks for: it runs on the page, and a question asked meanwhile waits for its end."""

import asyncio
import math
import time
from typing import Protocol

from chat_ui.errors import ChatError, EngineNotReady
from chat_ui.texts import Texts, explain

TICK_SECONDS = 1.0
# Nobody watches seconds for longer than this: the limits by the hour or day say once when they end.
MAX_RUNNING_SECONDS = 600
# A question waits so long by itself; where more is asked for, it is refused anew with the time that is left then.
MAX_HELD_SECONDS = 60


class Refusal(Protocol):
    """A message on the page that tells of a refusal, or that stands where an answer is to come."""

    async def wait(self, text: str) -> None:
        """Show a text until the first words come in its place."""

    async def rewrite(self, content: str) -> None:
        """Change the text of a message that is complete."""


class Respite:
    """The time until questions of one page are welcome again."""

    def __init__(self) -> None:
        self._ends_at = 0.0
        self._holds = False
        self._task: asyncio.Task[None] | None = None

    @property
    def seconds_left(self) -> int:
        """Whole seconds until it ends; 0 when it is over."""
        return max(0, math.ceil(self._ends_at - time.monotonic()))

    def begin(self, error: ChatError, reply: Refusal, texts: Texts) -> None:
        """Let the time of a refusal run in the message that tells of it. Needs the page's context."""
        if not error.retry_after_seconds:
            return
        self._ends_at = time.monotonic() + error.retry_after_seconds
        # While an engine starts, its seconds are a guess, and the gateway's waiting room the better place.
        self._holds = not isinstance(error, EngineNotReady)
        if error.retry_after_seconds <= MAX_RUNNING_SECONDS:
            self._task = asyncio.create_task(self._run(error, reply, texts))

    def stop(self) -> None:
        """Leave the message as it is: another question is asked, or the page is gone."""
        if self._task:
            self._task.cancel()

    async def hold(self, reply: Refusal, texts: Texts) -> None:
        """Hold a question back until it is welcome, and show the seconds in its answer's place."""
        if not self._holds or self.seconds_left > MAX_HELD_SECONDS:
            return
        while seconds := self.seconds_left:
            await reply.wait("> " + texts.retry_soon.format(seconds=seconds))
            await asyncio.sleep(min(TICK_SECONDS, max(0.0, self._ends_at - time.monotonic())))

    async def _run(self, error: ChatError, reply: Refusal, texts: Texts) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            seconds = self.seconds_left
            await reply.rewrite(explain(error, texts, seconds))
            if not seconds:
                return
