"""A person's visit: how a page opens, what the server holds for it, how it comes back, is taken up again, and ends."""

import asyncio
import contextlib
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any

import chainlit as cl
from chainlit.mode import Mode, ModeOption
from chainlit.types import ThreadDict

from chat_ui import buttons, chainlit_fixes
from chat_ui.chainlit_fixes import current_session
from chat_ui.conversation import Conversation, TurnState
from chat_ui.engine_watch import EngineWatch
from chat_ui.errors import ChatError
from chat_ui.gateway import Gateway, Model
from chat_ui.history.turns import kept_figures, restore, unanswered
from chat_ui.panel import Panel
from chat_ui.reply import Reply
from chat_ui.retrying import Respite
from chat_ui.sampling import Wishes
from chat_ui.settings import Settings
from chat_ui.texts import Texts, texts_for
from chat_ui.visitor import address_of
from chat_ui.waiting import EngineBanner

MODEL_MODE = "model"
STATE_KEY = "chat_ui"


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
    # Ids of the person's messages that have arrived.
    arrived: set[str] = field(default_factory=set)
    # What an answer to the last roll call must bear: other windows can write to the page, and read nothing of it.
    roll_call: str = ""

    @property
    def answering(self) -> bool:
        """Whether an answer is under way."""
        return self.task is not None and not self.task.done()


class Visits:
    """The open pages; each method is called in the context of one of them."""

    def __init__(self, settings: Settings, gateway: Gateway, watch: EngineWatch) -> None:
        self._settings = settings
        self._gateway = gateway
        self._watch = watch
        self._first_wishes = Wishes.at_first(
            settings.preset, max_tokens=settings.max_tokens, show_figures=settings.show_figures == "on"
        )
        self._farewells: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Show the panel, how far the engine is if it is away, and which model is served if it is not."""
        state = self.state()
        await state.panel.show(self.texts)
        state.banner.show(self.texts)
        await self._show_served_models()

    async def resume(self, thread: ThreadDict) -> None:
        """Take up a kept conversation as the person left it, an answer that is under way included."""
        # Chainlit adds the messages to what it already has, and does so again at each connection.
        cl.chat_context.clear()
        state = chainlit_fixes.take_over_page(STATE_KEY, is_wanted=lambda state: state.answering) or self.state()
        # A page that outlived its server shows more than was kept; it is asked before it is shown that.
        await self._call_the_roll(state, is_return=False)
        if state.answering:
            current_session().current_task = state.task
            await cl.context.emitter.task_start()
            if state.reply and state.reply.message.streaming:
                # Nothing is awaited from here on: a word between this and the page's taking it would be lost.
                thread["steps"].append(state.reply.message.to_dict())
            return
        if state.reply:
            await state.reply.retire()
        state.conversation.turns = restore(thread["steps"])
        state.arrived.update(turn.id for turn in state.conversation.turns)
        if state.conversation.turns:
            turn, texts = state.conversation.turns[-1], self.texts
            last = next(step for step in reversed(thread["steps"]) if step["type"] != "run")
            if last["type"] == "user_message":
                last = unanswered(last, texts.unanswered)
                thread["steps"].append(last)
            ways_on = [buttons.regenerate(turn, texts) if turn.answer else buttons.retry(turn, texts)]
            if turn.answer and turn.state is not TurnState.ANSWERED:
                ways_on.append(buttons.go_on(turn, texts))
            state.reply = await Reply.taken_up(last, ways_on)
        if state.panel.wishes.show_figures:
            for message_id, turn_id, figures in kept_figures(thread["steps"]):
                action = buttons.show_figures(turn_id, figures, self.texts)
                await chainlit_fixes.send_once(action, message_id)

    async def come_back(self) -> None:
        """Bring a page that lost its connection up to date: what was sent meanwhile, either way, never arrived."""
        state = self.state()
        if state.conversation.turns:
            await name_thread()
            await chainlit_fixes.tell_of_thread(state.conversation.turns[0].question)
        if state.reply:
            await state.reply.show_again()
        if state.answering:
            await cl.context.emitter.task_start()
        state.banner.show(self.texts)
        await self._call_the_roll(state, is_return=True)

    async def hear(self, said: object) -> None:
        """Take what the scripts of the page say: the answer to a roll call (roll_call.js), once."""
        state = self.state()
        match said:
            case {"type": "here", "token": str(token)} if state.roll_call:
                if secrets.compare_digest(token.encode(), state.roll_call.encode()):
                    state.roll_call = ""
                    await self._make_good(said)

    async def _call_the_roll(self, state: PageState, *, is_return: bool) -> None:
        """Ask the page for a question that nothing answers, and one that is back whether it has anything at all."""
        state.roll_call = secrets.token_urlsafe()
        await send_to_scripts({"type": "roll-call", "token": state.roll_call, "is_return": is_return})

    async def _make_good(self, said: object) -> None:
        """Bring what was lost, either way."""
        match said:
            case {"is_empty": True}:
                await chainlit_fixes.show_conversation(current_session())
                await self.open()
            case {"id": str(message_id), "text": str(text)} if self.arrives(message_id):
                await chainlit_fixes.deliver(current_session(), message_id, text)

    def arrives(self, message_id: str) -> bool:
        """Note a message of the person's; False for one that has arrived before."""
        arrived = self.state().arrived
        is_new = message_id not in arrived
        arrived.add(message_id)
        return is_new

    async def leave(self) -> None:
        """Stop the answer of a page that stays away; one that only lost its connection is back within the grace."""
        session, state = current_session(), self.state()
        grace = 0 if session.to_clear else self._settings.disconnect_grace_seconds
        state.banner.hide()
        farewell = asyncio.create_task(chainlit_fixes.release(session, state.task, grace))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    async def show_models(self, models: tuple[Model, ...]) -> None:
        """Show the served models beside the input, when they have changed; the first one is chosen."""
        state = self.state()
        if state.models == models:
            return
        state.models = models
        options = [
            ModeOption(id=model.id, name=model.id, icon="sparkles", default=index == 0)
            for index, model in enumerate(models)
        ]
        mode = Mode(id=MODEL_MODE, name=self.texts.model, options=options)
        await cl.context.emitter.set_modes([mode])

    def headers(self) -> dict[str, str]:
        """Headers of a call made for this person: an id for the logs, and the address that limits are kept for."""
        headers = {"x-request-id": f"chat-{uuid.uuid4().hex[:16]}"}
        if address := address_of(current_session().environ, self._settings.trusted_proxies):
            headers["x-end-user-address"] = address
        return headers

    @property
    def texts(self) -> Texts:
        """The texts of the page that is speaking."""
        return self.texts_in(current_session().language)

    def texts_in(self, language: str | None) -> Texts:
        """The texts of a browser's language, unless one is fixed."""
        fixed = self._settings.language
        return texts_for(language if fixed == "auto" else fixed)

    def state(self) -> PageState:
        """Return the state of the page that is speaking; what its panel was last set to holds in it."""
        state = cl.user_session.get(STATE_KEY)
        if not isinstance(state, PageState):
            wishes = self._first_wishes.read(current_session().chat_settings)
            banner = EngineBanner(self._watch, send_to_scripts, self._show_served_models)
            state = PageState(Panel(wishes), banner)
            cl.user_session.set(STATE_KEY, state)
        return state

    async def _show_served_models(self) -> None:
        """Show which models are served, if that is known already."""
        with contextlib.suppress(ChatError):
            await self.show_models(await self._gateway.models(self.headers()))


async def name_thread() -> None:
    """Tell the page which conversation it shows, if conversations are kept."""
    session = current_session()
    if session.user:
        await send_to_scripts({"type": "thread", "id": session.thread_id})


async def send_to_scripts(message: dict[str, Any]) -> None:
    """Send to the scripts of the page that is speaking."""
    await cl.context.emitter.send_window_message(message)
