"""One question answered: which prompt is sent, how the answer comes, what is said below it."""

import asyncio
import contextlib
from dataclasses import dataclass

import chainlit as cl

from chat_ui.conversation import Conversation, Prompt, Turn, TurnState
from chat_ui.errors import AnswerTimedOut, ContextTooLong
from chat_ui.gateway import Finish, Gateway, Model
from chat_ui.history.turns import mark
from chat_ui.reply import Reply
from chat_ui.texts import Texts

# Where the engine does not tell its context: the smallest reservation in common use.
DEFAULT_CONTEXT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Question:
    """A turn to be answered, where the answer appears, and in whose name and language."""

    turn: Turn
    conversation: Conversation
    reply: Reply
    headers: dict[str, str]
    texts: Texts


class Answerer:
    """Answers questions within the limits of the settings."""

    def __init__(
        self, gateway: Gateway, *, max_tokens: int, max_history_turns: int, request_timeout_seconds: float
    ) -> None:
        self._gateway = gateway
        self._max_tokens = max_tokens
        self._max_history_turns = max_history_turns
        self._request_timeout_seconds = request_timeout_seconds

    async def answer(self, question: Question, model: Model) -> None:
        """Stream the answer of one generation onto the page; raises `ChatError`, with what came left as it stands."""
        turn, texts = question.turn, question.texts
        finish, prompt = await self._fit_and_stream(question, model)
        turn.answer = question.reply.raw
        turn.state = TurnState.ANSWERED if turn.answer else TurnState.FAILED
        question.reply.message.metadata = mark(turn)
        notes = []
        if not turn.answer:
            notes.append(texts.note_empty)
        if finish == "length":
            notes.append(texts.note_length)
        if prompt.dropped_turns and not question.conversation.trimmed:
            question.conversation.trimmed = True
            notes.append(texts.note_dropped.format(count=prompt.dropped_turns))
        await question.reply.finish(notes, [ask_again(turn, texts.regenerate if turn.answer else texts.retry)])

    async def _fit_and_stream(self, question: Question, model: Model) -> tuple[str, Prompt]:
        """Send the newest turns that fit; where the engine finds them too long, fewer, down to the question alone."""
        context_tokens = model.context_tokens or DEFAULT_CONTEXT_TOKENS
        max_tokens = min(self._max_tokens, context_tokens // 2)
        max_turns = self._max_history_turns
        while True:
            prompt = question.conversation.prompt(
                question.turn,
                max_turns=max_turns,
                # A character is at most about one token of ERNIE's; where it is more, the engine says so.
                max_characters=context_tokens - max_tokens,
            )
            try:
                return await self._stream(question, model.id, prompt.messages, max_tokens), prompt
            except ContextTooLong:
                # Refused before a token was generated, so this is still one generation for one question.
                if not prompt.kept_turns:
                    raise
                max_turns = prompt.kept_turns // 2

    async def _stream(self, question: Question, model_id: str, messages: list[dict[str, str]], max_tokens: int) -> str:
        """Show the pieces as they come and return why the engine ended."""
        reason = ""
        pieces = self._gateway.stream_answer(model_id, messages, max_tokens, question.headers)
        try:
            async with asyncio.timeout(self._request_timeout_seconds), contextlib.aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, Finish):
                        reason = piece.reason
                    else:
                        await question.reply.feed(piece.text)
        except TimeoutError as error:
            raise AnswerTimedOut(request_id=question.headers["x-request-id"]) from error
        return reason


def ask_again(turn: Turn, label: str) -> cl.Action:
    """Return the button that answers a turn once more."""
    return cl.Action(name="ask_again", payload={"turn": turn.id}, label=label, icon="refresh-cw")
