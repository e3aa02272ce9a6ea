"""The page's handlers: what happens when a person asks, stops, asks again and goes on."""

import asyncio
import logging
from typing import Any

import chainlit as cl

from chat_ui import buttons, chainlit_fixes
from chat_ui.answering import Answerer, Question
from chat_ui.buttons import Button
from chat_ui.chainlit_fixes import current_session
from chat_ui.conversation import TurnState
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
from chat_ui.history.turns import mark
from chat_ui.reply import Reply
from chat_ui.settings import Settings
from chat_ui.starters import starters_for
from chat_ui.texts import CHINESE, explain
from chat_ui.visits import MODEL_MODE, PageState, Visits, name_thread

logger = logging.getLogger("chat_ui")

# Two seconds each: by then the gateway has noticed what became of the engine.
LOOKS_AFTER_A_FAULT = 5


class ChatPage:
    """The page's behaviour; what belongs to one person is in `PageState`."""

    def __init__(self, settings: Settings, gateway: Gateway) -> None:
        self._settings = settings
        self._gateway = gateway
        watch = EngineWatch(gateway)
        self._visits = Visits(settings, gateway, watch)
        self._answerer = Answerer(
            gateway,
            watch,
            max_history_turns=settings.max_history_turns,
            request_timeout_seconds=settings.request_timeout_seconds,
        )

    def register(self) -> None:
        """Hang the handlers into Chainlit."""
        cl.set_starters(self.starters)
        cl.on_message(self.ask)
        cl.on_chat_end(self._visits.leave)
        cl.on_chat_resume(self._visits.resume)
        cl.on_window_message(self._visits.hear)
        cl.on_settings_edit(self.edit_settings)
        cl.on_settings_update(self.save_settings)
        cl.action_callback(Button.ASK_AGAIN)(self.ask_again)
        cl.action_callback(Button.GO_ON)(self.go_on)
        cl.action_callback(Button.FIGURES)(self.explain_figures)
        cl.on_app_shutdown(self._gateway.close)
        chainlit_fixes.apply(
            on_connect=self._visits.open, on_return=self._visits.come_back, arrives=self._visits.arrives
        )

    async def starters(self, user: cl.User | None, language: str | None) -> list[cl.Starter]:
        """Questions to begin with, in the person's language."""
        del user
        starters = starters_for("zh" if self._visits.texts_in(language) is CHINESE else "en")
        return [cl.Starter(label=s.label, message=s.message, icon=s.icon) for s in starters]

    async def edit_settings(self, values: dict[str, Any]) -> None:
        """Follow the open panel."""
        await self._visits.state().panel.edit(values, self._visits.texts)

    async def save_settings(self, values: dict[str, Any]) -> None:
        """Take what was chosen in the panel."""
        await self._visits.state().panel.save(values, self._visits.texts)

    async def ask(self, message: cl.Message) -> None:
        """Answer a message, new, edited or asked again. Errors end on the page; cancelling keeps what came."""
        state = self._visits.state()
        state.arrived.add(message.id)
        await _take_over(state)
        texts = self._visits.texts
        length, limit = len(message.content), self._settings.max_message_characters
        if length > limit:
            await Reply().fail(texts.message_too_long.format(length=length, limit=limit), [])
            return
        turn = state.conversation.begin(message.id, message.content)
        if state.going_on and state.going_on[0] == turn.id:
            turn.begun, turn.instruction = state.going_on[1], texts.go_on_prompt
        state.going_on = None
        state.reply = reply = Reply(turn.begun)
        await name_thread()
        question = Question(turn, state.conversation, reply, state.panel.wishes, self._visits.headers(), texts)
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
        state = self._visits.state()
        turn = state.conversation.find(str(action.payload.get("turn")))
        if turn is not None:
            state.going_on = (turn.id, turn.answer)
        await self._replay(str(action.payload.get("turn")))

    async def explain_figures(self, action: cl.Action) -> None:
        """Say in a sentence what the figures of an answer mean."""
        await cl.context.emitter.send_toast(str(action.payload.get("text")), "info")

    async def _model_for(self, state: PageState, message: cl.Message) -> Model | None:
        """Return the model that the person has chosen; None while none is ready, and the question takes the first."""
        chosen = (message.modes or {}).get(MODEL_MODE)
        try:
            models = await self._gateway.models(self._visits.headers())
        except EngineNotReady:
            state.banner.show(self._visits.texts)
            # Where there was no choice, the engine that comes back may serve another model.
            several = state.models if len(state.models) > 1 else ()
            return next((model for model in several if model.id == chosen), None)
        await self._visits.show_models(models)
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
            await cl.context.emitter.send_toast(self._visits.texts.expired, "error")
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


async def _take_over(state: PageState) -> None:
    """Make this task the one that Stop cancels; an answer still under way ends first."""
    if state.task and state.answering:
        state.task.cancel()
        await asyncio.wait([state.task])
    state.task = current_session().current_task = asyncio.current_task()
    state.respite.stop()
    if state.reply:
        await state.reply.retire(Button.FIGURES)
