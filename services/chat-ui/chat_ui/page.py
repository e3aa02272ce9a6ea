"""The page's handlers: what happens when a person opens it, asks, stops, retries and leaves."""

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any

import chainlit as cl
from chainlit.mode import Mode, ModeOption
from chainlit.types import ThreadDict

from chat_ui import buttons, chainlit_fixes
from chat_ui.answering import Answerer, Question
from chat_ui.buttons import Button
from chat_ui.chainlit_fixes import current_session
from chat_ui.conversation import Conversation, TurnState
from chat_ui.engine_watch import EngineWatch
from chat_ui.errors import (
    AnswerCut,
    ChatError,
    EngineNotReady,
    GatewayUnreachable,
    RequestRefused,
    UpstreamFailed,
)
from chat_ui.gateway import Gateway, Model
from chat_ui.history.turns import mark, restore, unanswered
from chat_ui.panel import Panel
from chat_ui.reply import Reply
from chat_ui.retrying import Respite
from chat_ui.sampling import Wishes
from chat_ui.settings import Settings
from chat_ui.starters import starters_for
from chat_ui.texts import CHINESE, Texts, explain, texts_for
from chat_ui.visitor import address_of
from chat_ui.waiting import EngineBanner

logger = logging.getLogger("chat_ui")

MODEL_MODE = "model"
STATE_KEY = "chat_ui"
# Two seconds each: by then the gateway has noticed what became of the engine.
LOOKS_AFTER_A_FAULT = 5


@dataclass(slots=True)
class PageState:
    """What the server holds for one open page."""

    panel: Panel
    banner: EngineBanner
    conversation: Conversation = field(default_factory=Conversation)
    respite: Respite = field(default_factory=Respite)
    reply: Reply | None = None
    task: asyncio.Task[None] | None = None
    models: tuple[Model, ...] = ()
    # The turn whose answer is to be continued, and what it says so far.
    going_on: tuple[str, str] | None = None

    @property
    def answering(self) -> bool:
        """Whether an answer is under way."""
        return self.task is not None and not self.task.done()


class ChatPage:
    """The page's behaviour; what belongs to one person is in `PageState`."""

    def __init__(self, settings: Settings, gateway: Gateway) -> None:
        self._settings = settings
        self._gateway = gateway
        self._watch = EngineWatch(gateway)
        self._answerer = Answerer(
            gateway,
            self._watch,
            max_history_turns=settings.max_history_turns,
            request_timeout_seconds=settings.request_timeout_seconds,
        )
        self._first_wishes = Wishes.at_first(
            settings.preset, max_tokens=settings.max_tokens, show_figures=settings.show_figures == "on"
        )
        self._farewells: set[asyncio.Task[None]] = set()

    def register(self) -> None:
        """Hang the handlers into Chainlit."""
        cl.set_starters(self.starters)
        cl.on_message(self.ask)
        cl.on_chat_end(self.leave)
        cl.on_chat_resume(self.resume)
        cl.on_settings_edit(self.edit_settings)
        cl.on_settings_update(self.save_settings)
        cl.action_callback(Button.ASK_AGAIN)(self.ask_again)
        cl.action_callback(Button.GO_ON)(self.go_on)
        cl.action_callback(Button.FIGURES)(self.explain_figures)
        cl.on_app_shutdown(self._gateway.close)
        chainlit_fixes.apply(on_connect=self.open, on_return=self.come_back)

    async def starters(self, user: cl.User | None, language: str | None) -> list[cl.Starter]:
        """Questions to begin with, in the person's language."""
        del user
        starters = starters_for("zh" if self._texts(language) is CHINESE else "en")
        return [cl.Starter(label=s.label, message=s.message, icon=s.icon) for s in starters]

    async def open(self) -> None:
        """Show the panel, how far the engine is if it is away, and which model is served if it is not."""
        state = self._state()
        await state.panel.show(self._own_texts)
        state.banner.show(self._own_texts)
        await self._show_served_models()

    async def edit_settings(self, values: dict[str, Any]) -> None:
        """Follow the open panel."""
        await self._state().panel.edit(values, self._own_texts)

    async def save_settings(self, values: dict[str, Any]) -> None:
        """Take what was chosen in the panel."""
        await self._state().panel.save(values, self._own_texts)

    async def ask(self, message: cl.Message) -> None:
        """Answer a message, new, edited or asked again. Errors end on the page; cancelling keeps what came."""
        state = self._state()
        await _take_over(state)
        texts = self._own_texts
        length, limit = len(message.content), self._settings.max_message_characters
        if length > limit:
            await Reply().fail(texts.message_too_long.format(length=length, limit=limit), [])
            return
        turn = state.conversation.begin(message.id, message.content)
        if state.going_on and state.going_on[0] == turn.id:
            turn.begun, turn.instruction = state.going_on[1], texts.go_on_prompt
        state.going_on = None
        state.reply = reply = Reply(turn.begun)
        await _name_thread()
        question = Question(turn, state.conversation, reply, state.panel.wishes, self._headers(), texts)
        try:
            await reply.show_begun()
            await state.respite.hold(reply, texts)
            await self._answerer.answer(question, await self._model_for(state, message))
        except asyncio.CancelledError:
            turn.answer, turn.state = reply.raw, TurnState.STOPPED
            reply.message.metadata = mark(turn)
            note = texts.note_stopped if turn.answer else texts.note_stopped_empty
            actions = [buttons.regenerate(turn, texts)] + ([buttons.go_on(turn, texts)] if turn.answer else [])
            await reply.finish([note], actions)
            raise
        except Exception as error:  # noqa: BLE001 - the edge: a person sees every fault, `_log` keeps it
            self._log(error, question)
            await self._explain(error, question, state)

    async def ask_again(self, action: cl.Action) -> None:
        """Answer the message of a button once more, in a task that Stop can cancel."""
        await self._replay(str(action.payload.get("turn")))

    async def go_on(self, action: cl.Action) -> None:
        """Continue the answer of a button where it ended."""
        state = self._state()
        turn = state.conversation.find(str(action.payload.get("turn")))
        if turn is not None:
            state.going_on = (turn.id, turn.answer)
        await self._replay(str(action.payload.get("turn")))

    async def explain_figures(self, action: cl.Action) -> None:
        """Say in a sentence what the figures of an answer mean."""
        await cl.context.emitter.send_toast(str(action.payload.get("text")), "info")

    async def resume(self, thread: ThreadDict) -> None:
        """Take up a kept conversation as the person left it, an answer that is under way included."""
        # Chainlit adds the messages to what it already has, and does so again at each connection.
        cl.chat_context.clear()
        state = chainlit_fixes.take_over_page(STATE_KEY, is_wanted=lambda state: state.answering) or self._state()
        if state.answering:
            current_session().current_task = state.task
            await cl.context.emitter.task_start()
            if state.reply and state.reply.message.streaming:
                # Nothing is awaited from here on: a word between this and the page's taking it would be lost.
                thread["steps"].append(state.reply.message.to_dict())
            return
        state.conversation.turns = restore(thread["steps"])
        if state.conversation.turns:
            turn, texts = state.conversation.turns[-1], self._own_texts
            last = next(step for step in reversed(thread["steps"]) if step["type"] != "run")
            if last["type"] == "user_message":
                last = unanswered(last, texts.unanswered)
                thread["steps"].append(last)
            ways_on = [buttons.regenerate(turn, texts) if turn.answer else buttons.retry(turn, texts)]
            if turn.answer and turn.state is not TurnState.ANSWERED:
                ways_on.append(buttons.go_on(turn, texts))
            state.reply = await Reply.taken_up(last, ways_on)

    async def come_back(self) -> None:
        """Bring a page that lost its connection up to date: what was sent meanwhile never reached it."""
        state = self._state()
        if state.reply and state.reply.message.content:
            await state.reply.show_again()
        if state.answering:
            await cl.context.emitter.task_start()
        state.banner.show(self._own_texts)

    async def leave(self) -> None:
        """Stop the answer of a page that stays away; one that only lost its connection is back within the grace."""
        session, state = current_session(), self._state()
        grace = 0 if session.to_clear else self._settings.disconnect_grace_seconds
        state.banner.hide()
        farewell = asyncio.create_task(chainlit_fixes.release(session, state.task, grace))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    async def _model_for(self, state: PageState, message: cl.Message) -> Model | None:
        """Return the model that the person has chosen; None while none is ready, and the question takes the first."""
        chosen = (message.modes or {}).get(MODEL_MODE)
        try:
            models = await self._gateway.models(self._headers())
        except EngineNotReady:
            state.banner.show(self._own_texts)
            # Where there was no choice, the engine that comes back may serve another model.
            several = state.models if len(state.models) > 1 else ()
            return next((model for model in several if model.id == chosen), None)
        await self._show_models(state, models)
        return next((model for model in models if model.id == chosen), models[0])

    async def _explain(self, error: Exception, question: Question, state: PageState) -> None:
        """Say what happened, and offer ways on."""
        turn, texts, reply = question.turn, question.texts, question.reply
        turn.answer, turn.state = reply.raw, TurnState.FAILED
        explanation, actions = explain(error, texts), [buttons.retry(turn, texts)]
        if reply.raw:
            reply.message.metadata = mark(turn)
            explanation = texts.note_incomplete + explanation
            actions.append(buttons.go_on(turn, texts))
        await reply.fail(explanation, actions)
        if isinstance(error, ChatError) and not reply.raw:
            state.respite.begin(error, reply, texts)
        if isinstance(error, EngineNotReady | GatewayUnreachable | UpstreamFailed | AnswerCut):
            state.banner.show(texts, looks=LOOKS_AFTER_A_FAULT)

    async def _replay(self, turn_id: str) -> None:
        message = chainlit_fixes.find_message(turn_id)
        if message is None:
            await cl.context.emitter.send_toast(self._own_texts.expired, "error")
            return
        chainlit_fixes.replay(current_session(), message)

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

    async def _show_served_models(self) -> None:
        """Show which models are served, if that is known already."""
        with contextlib.suppress(ChatError):
            await self._show_models(self._state(), await self._gateway.models(self._headers()))

    async def _show_models(self, state: PageState, models: tuple[Model, ...]) -> None:
        """Show the served models beside the input, when they have changed; the first one is chosen."""
        if state.models == models:
            return
        state.models = models
        options = [
            ModeOption(id=model.id, name=model.id, icon="sparkles", default=index == 0)
            for index, model in enumerate(models)
        ]
        mode = Mode(id=MODEL_MODE, name=self._own_texts.model, options=options)
        await cl.context.emitter.set_modes([mode])

    def _headers(self) -> dict[str, str]:
        """Headers of a call made for this person: an id for the logs, and the address that limits are kept for."""
        headers = {"x-request-id": f"chat-{uuid.uuid4().hex[:16]}"}
        if address := address_of(current_session().environ, self._settings.trusted_proxies):
            headers["x-end-user-address"] = address
        return headers

    @property
    def _own_texts(self) -> Texts:
        """The texts of the page that is speaking."""
        return self._texts(current_session().language)

    def _texts(self, language: str | None) -> Texts:
        fixed = self._settings.language
        return texts_for(language if fixed == "auto" else fixed)

    def _state(self) -> PageState:
        """Return the state of the page that is speaking; what its panel was last set to holds in it."""
        state = cl.user_session.get(STATE_KEY)
        if not isinstance(state, PageState):
            wishes = self._first_wishes.read(current_session().chat_settings)
            banner = EngineBanner(self._watch, _send_to_scripts, self._show_served_models)
            state = PageState(Panel(wishes), banner)
            cl.user_session.set(STATE_KEY, state)
        return state


async def _name_thread() -> None:
    """Tell the page which conversation it shows, if conversations are kept."""
    session = current_session()
    if session.user:
        await _send_to_scripts({"type": "thread", "id": session.thread_id})


async def _send_to_scripts(message: dict[str, Any]) -> None:
    await cl.context.emitter.send_window_message(message)


async def _take_over(state: PageState) -> None:
    """Make this task the one that Stop cancels; an answer still under way ends first."""
    if state.task and state.answering:
        state.task.cancel()
        await asyncio.wait([state.task])
    state.task = current_session().current_task = asyncio.current_task()
    state.respite.stop()
    if state.reply:
        await state.reply.retire(Button.FIGURES)
