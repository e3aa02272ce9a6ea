"""What a person sees while an answer has not begun: the place in the queue, and how far the engine is."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from chat_ui.engine_state import EngineState
from chat_ui.engine_watch import FRESH_SECONDS, EngineWatch
from chat_ui.gateway import Place
from chat_ui.texts import Texts

# Sends a message to the scripts of the page.
SendMessage = Callable[[dict[str, Any]], Awaitable[None]]

# Most answers begin sooner; then nothing flashes by.
PATIENCE_SECONDS = 1.0
TICK_SECONDS = 1.0


def describe_engine(state: EngineState | None, texts: Texts) -> str:
    """Say how far the engine is; None is a gateway that cannot be reached."""
    if state is None:
        return texts.engine_unreached
    if state.ready:
        return texts.engine_ready
    stage = texts.stages.get(state.stage)
    text = texts.engine_stage.format(stage=stage) if stage else texts.engine_away
    if state.progress is not None:
        text += f" {state.progress:.0%}"
    if state.seconds_left is not None:
        text += texts.engine_seconds.format(seconds=math.ceil(state.seconds_left))
    return text


class Pending(Protocol):
    """An answer that has not begun."""

    async def wait(self, text: str) -> None:
        """Show a text until the first words come in its place."""


class PendingNotice:
    """Stands in an answer's place until its first word comes, and follows the queue and the engine meanwhile."""

    def __init__(self, reply: Pending, watch: EngineWatch, texts: Texts) -> None:
        self._reply = reply
        self._watch = watch
        self._texts = texts
        self._place: Place | None = None
        self._told_at = 0.0
        self._task = asyncio.create_task(self._run())

    @property
    def has_waited(self) -> bool:
        """Whether the gateway has let the question wait."""
        return self._place is not None

    def note(self, place: Place) -> None:
        """The gateway has told the place."""
        self._place, self._told_at = place, time.monotonic()

    def stop(self) -> None:
        """The answer has begun, or failed."""
        self._task.cancel()

    async def _run(self) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        was_away = False
        while True:
            state = await self._watch.state()
            was_away = was_away or state is None or not state.ready
            if text := self._text(state, was_away=was_away):
                await self._reply.wait(text)
            await asyncio.sleep(TICK_SECONDS)

    def _text(self, state: EngineState | None, *, was_away: bool) -> str:
        lines = [describe_engine(state, self._texts)] if was_away else []
        if state is None or not state.ready:
            lines.append(self._texts.waiting_kept)
        # While the engine starts, the gateway's seconds are those of the start.
        if self._place and (state is None or state.ready or self._place.place > 1):
            lines.append(self._describe_place(self._place, timed=bool(state and state.ready)))
        return "\n\n".join(f"> {line}" for line in lines)

    def _describe_place(self, place: Place, *, timed: bool) -> str:
        ahead = place.place - 1
        text = self._texts.waiting_place.format(ahead=ahead) if ahead else self._texts.waiting_next
        if place.seconds_left is not None and timed:
            left = math.ceil(place.seconds_left - (time.monotonic() - self._told_at))
            text += self._texts.waiting_seconds.format(seconds=left) if left > 0 else self._texts.waiting_soon
        return text


class EngineBanner:
    """Tells an open page how far the engine is, from when it is away until it is back; then it is quiet.

    `send` reaches engine.js; `on_ready` is called, in the page's context, when an engine that was away is back.
    """

    def __init__(self, watch: EngineWatch, send: SendMessage, on_ready: Callable[[], Awaitable[None]]) -> None:
        self._watch = watch
        self._send_message = send
        self._on_ready = on_ready
        self._task: asyncio.Task[None] | None = None

    def show(self, texts: Texts, looks: int = 1) -> None:
        """Look now, and go on for as long as the engine takes no questions. Needs the page's context.

        An engine that has just failed may still be called ready: then several looks are better than one.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(texts, looks))

    def hide(self) -> None:
        """The page is gone, for now at least."""
        if self._task:
            self._task.cancel()

    async def _run(self, texts: Texts, looks: int) -> None:
        state = await self._watch.state()
        for _ in range(looks - 1):
            if not (state and state.ready):
                break
            await asyncio.sleep(FRESH_SECONDS)
            state = await self._watch.state()
        if state and state.ready:
            return
        while not (state and state.ready):
            await self._send(describe_engine(state, texts), state)
            await asyncio.sleep(FRESH_SECONDS)
            state = await self._watch.state()
        await self._send(texts.engine_ready, state)
        await self._on_ready()

    async def _send(self, text: str, state: EngineState | None) -> None:
        message = {
            "type": "engine-state",
            "text": text,
            "share": state.share if state else None,
            "ready": bool(state and state.ready),
        }
        await self._send_message(message)
