"""One question answered: which prompt is sent, how the answer comes, what is said below it."""

import asyncio
import contextlib
from dataclasses import dataclass

from chat_ui import buttons
from chat_ui.conversation import Conversation, Count, Messages, Turn, TurnState
from chat_ui.engine_watch import EngineWatch
from chat_ui.errors import AnswerTimedOut, ContextTooLong, EngineNotReady
from chat_ui.figures import Stopwatch
from chat_ui.fitting import Fitted, Room, fit
from chat_ui.gateway import Finish, Gateway, Model, Place
from chat_ui.history.turns import mark
from chat_ui.reply import Reply
from chat_ui.sampling import Wishes
from chat_ui.texts import Texts
from chat_ui.waiting import PendingNotice

# Where the engine does not tell its context: the smallest reservation in common use.
DEFAULT_CONTEXT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Question:
    """A turn to be answered, where the answer appears, in whose name and language, and how it is to be made."""

    turn: Turn
    conversation: Conversation
    reply: Reply
    wishes: Wishes
    headers: dict[str, str]
    texts: Texts


class Answerer:
    """Answers questions within the limits of the settings."""

    def __init__(
        self, gateway: Gateway, watch: EngineWatch, *, max_history_turns: int, request_timeout_seconds: float
    ) -> None:
        self._gateway = gateway
        self._watch = watch
        self._max_history_turns = max_history_turns
        self._request_timeout_seconds = request_timeout_seconds

    async def answer(self, question: Question, model: Model | None) -> None:
        """Stream the answer of one generation onto the page; raises `ChatError`, with what came left as it stands.

        Without a model, as long as none is ready, the question waits for the first that is.
        """
        turn, texts = question.turn, question.texts
        stopwatch = Stopwatch()
        try:
            async with asyncio.timeout(self._request_timeout_seconds):
                finish, fitted = await self._fit_and_stream(question, model, stopwatch)
        except TimeoutError as error:
            raise AnswerTimedOut(request_id=question.headers["x-request-id"]) from error
        if finish.usage and model:
            question.conversation.counted = Count(model.id, fitted.prompt.messages, finish.usage.prompt_tokens)
        turn.answer = question.reply.raw
        turn.state = TurnState.ANSWERED if turn.answer else TurnState.FAILED
        figures = stopwatch.figures(finish.usage)
        question.reply.message.metadata = mark(turn, figures)
        notes, actions = [], [buttons.regenerate(turn, texts) if turn.answer else buttons.retry(turn, texts)]
        if not turn.answer:
            notes.append(texts.note_empty)
        if finish.reason == "length":
            notes.append(texts.note_length)
            actions.append(buttons.go_on(turn, texts))
        if fitted.prompt.dropped_turns and not question.conversation.trimmed:
            question.conversation.trimmed = True
            notes.append(texts.note_dropped.format(count=fitted.prompt.dropped_turns))
        if figures and question.wishes.show_figures:
            actions.append(buttons.show_figures(turn.id, figures, texts))
        await question.reply.finish(notes, actions)

    async def _fit_and_stream(
        self, question: Question, model: Model | None, stopwatch: Stopwatch
    ) -> tuple[Finish, Fitted]:
        """Send the newest turns that fit, until the engine takes them.

        What is sent again was refused before a token was generated: this is still one generation for one question.
        """
        max_turns = self._max_history_turns
        while True:
            fitted = await self._fit(question, model, max_turns)
            notice = PendingNotice(question.reply, self._watch, question.texts)
            try:
                return await self._stream(question, model, fitted, stopwatch, notice), fitted
            except ContextTooLong:
                if not fitted.prompt.kept_turns:
                    raise
                max_turns = fitted.prompt.kept_turns // 2
            except EngineNotReady:
                # The gateway lets nobody wait for as long as a first start can take. Who was let in may come again.
                if not notice.has_waited:
                    raise
            finally:
                notice.stop()

    async def _fit(self, question: Question, model: Model | None, max_turns: int) -> Fitted:
        context_tokens = (model.context_tokens if model else None) or DEFAULT_CONTEXT_TOKENS
        answer_tokens = min(question.wishes.max_tokens, context_tokens // 2)

        async def count(messages: Messages) -> int | None:
            return await self._gateway.count_tokens(model.id, messages, question.headers) if model else None

        return await fit(
            question.conversation,
            question.turn,
            Room(model.id if model else "", context_tokens, answer_tokens),
            count,
            max_turns=max_turns,
            system_prompt=question.wishes.system_prompt,
        )

    async def _stream(
        self, question: Question, model: Model | None, fitted: Fitted, stopwatch: Stopwatch, notice: PendingNotice
    ) -> Finish:
        """Show the place in the queue, then the pieces as they come, and return how the engine ended."""
        finish = Finish("")
        pieces = self._gateway.stream_answer(
            model.id if model else None,
            fitted.prompt.messages,
            {**question.wishes.parameters, "max_tokens": fitted.answer_tokens},
            question.headers,
        )
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Place):
                    notice.note(piece)
                elif isinstance(piece, Finish):
                    finish = piece
                else:
                    notice.stop()
                    stopwatch.note_words()
                    await question.reply.feed(piece.text)
        return finish
