"""One answer on the page: streamed in batches, ended with notes and buttons."""

import asyncio
from typing import Self

import chainlit as cl
from chainlit.step import StepDict

from chat_ui import chainlit_fixes
from chat_ui.presentation import Presenter

# A frame for each token took the browser twice as long as the engine; a frame each 50 ms kept up with it.
FLUSH_SECONDS = 0.05


class Reply:
    """Shows one answer while it comes. `raw` is what the model wrote, the page gets its presentation.

    An answer that is continued has `begun` already.
    """

    def __init__(self, begun: str = "") -> None:
        self.message = cl.Message(content="")
        self._run = cl.context.current_run
        self._pieces: list[str] = []
        self._presenter = Presenter()
        self._finished = ""
        self._flush: asyncio.Task[None] | None = None
        if begun:
            self._pieces.append(begun)
            self._presenter.feed(begun)

    @classmethod
    async def taken_up(cls, step: StepDict, actions: list[cl.Action]) -> Self:
        """Return the reply of a message that the page already shows, and put buttons under it."""
        reply = cls()
        reply.message = cl.Message.from_dict(step)
        reply.message.is_error = bool(step.get("isError"))
        reply.message.actions = actions
        for action in actions:
            await action.send(reply.message.id)
        return reply

    @property
    def raw(self) -> str:
        """The answer so far, for the next prompt."""
        return "".join(self._pieces)

    async def show_begun(self) -> None:
        """Show what there is of an answer that is continued."""
        if self._pieces:
            await self._write()

    async def wait(self, text: str) -> None:
        """Show a text until the first words come in its place."""
        if not self._pieces and text != self.message.content:
            await self.message.stream_token(text, is_sequence=True)

    async def feed(self, text: str) -> None:
        """Take the next piece; the first is shown at once, later ones within `FLUSH_SECONDS`."""
        self._pieces.append(text)
        self._presenter.feed(text)
        if not self.message.streaming:
            await self._write()
        elif self._flush is None:
            self._flush = asyncio.create_task(self._write_soon())

    async def finish(self, notes: list[str], actions: list[cl.Action]) -> None:
        """Show the whole text with notes below it and buttons under it."""
        self._cancel_flush()
        self._finished += self._presenter.close()
        parts = [self._finished] if self._finished else []
        parts += [f"> {note}" for note in notes]
        await self._send("\n\n".join(parts), actions)

    async def fail(self, explanation: str, actions: list[cl.Action]) -> None:
        """Show an error: under what came of the answer, or in its place."""
        if self._pieces:
            await self.finish(explanation.split("\n\n"), actions)
            return
        self.message.is_error = True
        await self._send(explanation, actions)

    async def rewrite(self, content: str) -> None:
        """Change the text of a message that is complete, on the page alone."""
        self.message.content = content
        await cl.context.emitter.update_step(self.message.to_dict())

    async def show_again(self) -> None:
        """Send the present state, buttons included, to a page that was away for a moment."""
        await chainlit_fixes.tell_of_run(self._run)
        if not self.message.content:
            return
        await cl.context.emitter.send_step(self.message.to_dict())
        for action in self.message.actions:
            await chainlit_fixes.send_once(action, self.message.id)

    async def retire(self, *kept: str) -> None:
        """Take the buttons away, since another question is asked; those of a name in `kept` stay."""
        staying = [action for action in self.message.actions if action.name in kept]
        for action in self.message.actions:
            if action not in staying:
                await action.remove()
        self.message.actions = staying

    async def _send(self, content: str, actions: list[cl.Action]) -> None:
        self.message.content = content
        self.message.actions = actions
        await self.message.send()

    async def _write_soon(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        self._flush = None
        await self._write()

    async def _write(self) -> None:
        self._finished += self._presenter.take_finished()
        shown = self._finished + self._presenter.unfinished
        before = self.message.content
        if shown.startswith(before):
            await self.message.stream_token(shown[len(before) :])
        else:
            await self.message.stream_token(shown, is_sequence=True)

    def _cancel_flush(self) -> None:
        if self._flush:
            self._flush.cancel()
            self._flush = None
