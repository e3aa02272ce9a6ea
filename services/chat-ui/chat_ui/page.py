"""The page's handlers: what happens when a person opens it, asks, stops, retries and leaves."""

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass, field

import chainlit as cl
from chainlit.mode import Mode, ModeOption
from chainlit.types import ThreadDict

from chat_ui import chainlit_fixes
from chat_ui.answering import Answerer, Question, ask_again
from chat_ui.chainlit_fixes import current_session
from chat_ui.conversation import Conversation, TurnState
from chat_ui.errors import ChatError, RequestRefused
from chat_ui.gateway import Gateway, Model
from chat_ui.history.turns import mark, restore
from chat_ui.reply import Reply
from chat_ui.settings import Settings
from chat_ui.texts import Texts, explain, texts_for
from chat_ui.visitor import address_of

logger = logging.getLogger("chat_ui")

MODEL_MODE = "model"
STATE_KEY = "chat_ui"


@dataclass(slots=True)
class PageState:
    """What the server holds for one open page."""

    conversation: Conversation = field(default_factory=Conversation)
    reply: Reply | None = None
    task: asyncio.Task[None] | None = None
    models: tuple[Model, ...] = ()

    @property
    def answering(self) -> bool:
        """Whether an answer is under way."""
        return self.task is not None and not self.task.done()


class ChatPage:
    """The page's behaviour; what belongs to one person is in `PageState`."""

    def __init__(self, settings: Settings, gateway: Gateway) -> None:
        self._settings = settings
        self._gateway = gateway
        self._answerer = Answerer(
            gateway,
            max_tokens=settings.max_tokens,
            max_history_turns=settings.max_history_turns,
            request_timeout_seconds=settings.request_timeout_seconds,
        )
        self._farewells: set[asyncio.Task[None]] = set()

    def register(self) -> None:
        """Hang the handlers into Chainlit."""
        cl.set_starters(self.starters)
        cl.on_message(self.ask)
        cl.on_chat_end(self.leave)
        cl.on_chat_resume(self.resume)
        cl.action_callback("ask_again")(self.ask_again)
        cl.on_app_shutdown(self._gateway.close)
        chainlit_fixes.apply(on_connect=self.open, on_return=self.come_back)

    async def starters(self, user: cl.User | None, language: str | None) -> list[cl.Starter]:
        """Questions to begin with, in the person's language."""
        del user
        texts = self._texts(language)
        return [cl.Starter(label=s.label, message=s.message, icon=s.icon) for s in texts.starters]

    async def open(self) -> None:
        """Show which model is served, if that is known already."""
        with contextlib.suppress(ChatError):
            await self._show_models(_state(), await self._gateway.models(self._headers()))

    async def ask(self, message: cl.Message) -> None:
        """Answer a message, new, edited or asked again. Errors end on the page; cancelling keeps what came."""
        state = _state()
        await _take_over(state)
        texts = self._texts(current_session().language)
        length, limit = len(message.content), self._settings.max_message_characters
        if length > limit:
            await Reply().fail(texts.message_too_long.format(length=length, limit=limit), [])
            return
        turn = state.conversation.begin(message.id, message.content)
        state.reply = reply = Reply()
        question = Question(turn, state.conversation, reply, self._headers(), texts)
        try:
            models = await self._gateway.models(question.headers)
            chosen = (message.modes or {}).get(MODEL_MODE)
            await self._show_models(state, models)
            await self._answerer.answer(question, next((m for m in models if m.id == chosen), models[0]))
        except asyncio.CancelledError:
            turn.answer, turn.state = reply.raw, TurnState.STOPPED
            reply.message.metadata = mark(turn)
            note = texts.note_stopped if turn.answer else texts.note_stopped_empty
            await reply.finish([note], [ask_again(turn, texts.regenerate)])
            raise
        except Exception as error:  # noqa: BLE001 - the edge: a person sees every fault, `_log` keeps it
            turn.answer, turn.state = reply.raw, TurnState.FAILED
            if turn.answer:
                reply.message.metadata = mark(turn)
            self._log(error, question)
            explanation = explain(error, texts)
            if reply.raw:
                explanation = texts.note_incomplete + explanation
            await reply.fail(explanation, [ask_again(turn, texts.retry)])

    async def ask_again(self, action: cl.Action) -> None:
        """Answer the message of a button once more, in a task that Stop can cancel."""
        message = chainlit_fixes.find_message(str(action.payload["turn"]))
        if message is None:
            texts = self._texts(current_session().language)
            await cl.context.emitter.send_toast(texts.expired, "error")
            return
        chainlit_fixes.replay(current_session(), message)

    async def resume(self, thread: ThreadDict) -> None:
        """Take up a kept conversation as the person left it; its last turn can be answered again."""
        # Chainlit adds the messages to what it already has, and does so again at each connection.
        cl.chat_context.clear()
        conversation = _state().conversation
        conversation.turns = restore(thread["steps"])
        if conversation.turns:
            turn = conversation.turns[-1]
            texts = self._texts(current_session().language)
            label = texts.regenerate if turn.answer else texts.retry
            await ask_again(turn, label).send(for_id=thread["steps"][-1]["id"])

    async def come_back(self) -> None:
        """Bring a page that lost its connection up to date: what was sent meanwhile never reached it."""
        state = _state()
        if state.reply and state.reply.message.content:
            await state.reply.show_again()
        if state.answering:
            await cl.context.emitter.task_start()

    async def leave(self) -> None:
        """Stop the answer of a page that stays away; one that only lost its connection is back within the grace."""
        session = current_session()
        grace = 0 if session.to_clear else self._settings.disconnect_grace_seconds
        farewell = asyncio.create_task(chainlit_fixes.release(session, _state().task, grace))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    def _log(self, error: Exception, question: Question) -> None:
        """Leave a line that the id on the page leads to; a fault of the page's own with its traceback."""
        request_id = question.headers["x-request-id"]
        if not isinstance(error, ChatError):
            logger.error("answering failed, request %s", request_id, exc_info=error)
            return
        if isinstance(error, RequestRefused):
            # Perhaps another model is served now.
            self._gateway.forget_models()
        logger.warning("%s, request %s: %s", type(error).__name__, error.request_id or request_id, error.detail)

    async def _show_models(self, state: PageState, models: tuple[Model, ...]) -> None:
        """Show the served models beside the input, when they have changed; the first one is chosen."""
        if state.models == models:
            return
        state.models = models
        options = [
            ModeOption(id=model.id, name=model.id, icon="sparkles", default=index == 0)
            for index, model in enumerate(models)
        ]
        texts = self._texts(current_session().language)
        await cl.context.emitter.set_modes([Mode(id=MODEL_MODE, name=texts.model, options=options)])

    def _headers(self) -> dict[str, str]:
        """Headers of a call made for this person: an id for the logs, and the address that limits are kept for."""
        headers = {"x-request-id": f"chat-{uuid.uuid4().hex[:16]}"}
        if address := address_of(current_session().environ, self._settings.trusted_proxies):
            headers["x-end-user-address"] = address
        return headers

    def _texts(self, language: str | None) -> Texts:
        fixed = self._settings.language
        return texts_for(language if fixed == "auto" else fixed)


async def _take_over(state: PageState) -> None:
    """Make this task the one that Stop cancels; an answer still under way ends first."""
    if state.task and state.answering:
        state.task.cancel()
        await asyncio.wait([state.task])
    state.task = current_session().current_task = asyncio.current_task()
    if state.reply:
        await state.reply.message.remove_actions()


def _state() -> PageState:
    """Return the state of the page that is speaking."""
    state = cl.user_session.get(STATE_KEY)
    if not isinstance(state, PageState):
        state = PageState()
        cl.user_session.set(STATE_KEY, state)
    return state
