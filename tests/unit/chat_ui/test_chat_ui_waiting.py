"""What stands in an answer's place, and the time that a refusal asks for, without a browser."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from chat_ui import engine_watch, retrying, waiting
from chat_ui.engine_state import READY, EngineState
from chat_ui.engine_watch import EngineWatch
from chat_ui.errors import ChatError, EngineBusy, EngineNotReady, GatewayUnreachable, RateLimited
from chat_ui.gateway import Gateway, Place
from chat_ui.retrying import MAX_HELD_SECONDS, MAX_RUNNING_SECONDS, Respite
from chat_ui.texts import ENGLISH
from chat_ui.waiting import EngineBanner, PendingNotice, describe_engine

LOADING = EngineState(ready=False, stage="loading", progress=0.45, seconds_left=40.2)
TICK = 0.01


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", TICK)
    monkeypatch.setattr(waiting, "TICK_SECONDS", TICK)
    monkeypatch.setattr(retrying, "TICK_SECONDS", TICK)


@dataclass
class Shown:
    """Takes a reply's place, and keeps what it is told to show."""

    texts: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def wait(self, text: str) -> None:
        """Take a text for the time before the first word."""
        await self.texts.put(text)

    async def rewrite(self, content: str) -> None:
        """Take a text in place of another."""
        await self.texts.put(content)

    async def next(self) -> str:
        """Return the next text."""
        return await asyncio.wait_for(self.texts.get(), 5)


@dataclass
class States:
    """Takes the gateway's place, and tells these states one after the other, the last for ever."""

    states: list[EngineState | ChatError]
    asked: int = 0
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)

    async def engine_state(self) -> EngineState:
        """Tell the next state."""
        self.asked += 1
        self.looked_at.set()
        await asyncio.sleep(0)
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, ChatError):
            raise state
        return state


def watch(*states: EngineState | ChatError) -> tuple[EngineWatch, States]:
    told = States(list(states))
    return EngineWatch(cast("Gateway", told)), told


async def test_many_pages_ask_the_gateway_once() -> None:
    watching, told = watch(LOADING)
    assert await asyncio.gather(*(watching.state() for _ in range(100))) == [LOADING] * 100
    assert told.asked == 1


async def test_state_is_asked_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_watch, "FRESH_SECONDS", 0.0)
    watching, _ = watch(LOADING, GatewayUnreachable(), READY)
    assert [await watching.state() for _ in range(3)] == [LOADING, None, READY]


async def test_cancelled_look_holds_nobody_up() -> None:
    watching, _ = watch(LOADING)
    look = asyncio.create_task(watching.state())
    await asyncio.sleep(0)
    look.cancel()
    assert await asyncio.wait_for(watching.state(), 1) == LOADING


def test_engine_is_described_with_what_is_known() -> None:
    assert describe_engine(LOADING, ENGLISH) == "The model is starting: loading it 45%, about 41 s left"
    assert describe_engine(EngineState(ready=False), ENGLISH) == ENGLISH.engine_away
    assert describe_engine(None, ENGLISH) == ENGLISH.engine_unreached
    assert describe_engine(READY, ENGLISH) == ENGLISH.engine_ready


async def test_pending_answer_follows_the_engine_and_the_queue() -> None:
    shown, (watching, _) = Shown(), watch(LOADING)
    notice = PendingNotice(shown, watching, ENGLISH)
    try:
        text = await shown.next()
        assert "loading it 45%" in text
        assert ENGLISH.waiting_kept in text
        assert not notice.has_waited
        notice.note(Place(4, 30.0))
        while "3 before yours" not in text:
            text = await shown.next()
        assert "about 30 s" not in text, "the seconds are those of the start, and stand there already"
        assert notice.has_waited
    finally:
        notice.stop()


async def test_place_in_the_queue_of_a_ready_engine_has_its_time() -> None:
    shown, (watching, _) = Shown(), watch(READY)
    notice = PendingNotice(shown, watching, ENGLISH)
    try:
        notice.note(Place(1, 30.0))
        assert await shown.next() == "> In the queue: yours is next, about 30 s left"
        notice.note(Place(2, 0.0))
        text = ""
        while not text.startswith("> In the queue: 1 "):
            text = await shown.next()
        assert text.endswith(ENGLISH.waiting_soon)
    finally:
        notice.stop()


async def test_ready_engine_without_a_queue_needs_no_word() -> None:
    shown, (watching, told) = Shown(), watch(READY)
    notice = PendingNotice(shown, watching, ENGLISH)
    await asyncio.wait_for(told.looked_at.wait(), 5)
    notice.stop()
    assert shown.texts.empty()


@pytest.mark.parametrize(("looks", "shown"), [(1, []), (3, [ENGLISH.engine_unreached, ENGLISH.engine_ready])])
async def test_banner_of_an_engine_that_is_still_called_ready_takes_several_looks(
    monkeypatch: pytest.MonkeyPatch, looks: int, shown: list[str]
) -> None:
    monkeypatch.setattr(engine_watch, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "FRESH_SECONDS", TICK)
    watching, told = watch(READY, READY, GatewayUnreachable(), READY)
    texts: list[str] = []
    over = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        texts.append(message["text"])

    async def on_ready() -> None:
        over.set()

    banner = EngineBanner(watching, send, on_ready)
    banner.show(ENGLISH, looks)
    await asyncio.wait_for(over.wait() if shown else told.looked_at.wait(), 5)
    banner.hide()
    assert texts == shown


async def test_refusal_counts_down_to_its_end() -> None:
    shown, respite = Shown(), Respite()
    respite.begin(RateLimited(retry_after_seconds=1), shown, ENGLISH)
    assert respite.seconds_left == 1
    text = await shown.next()
    assert "1 s" in text
    while ENGLISH.retry_now not in text:
        text = await shown.next()
    assert respite.seconds_left == 0


@pytest.mark.parametrize("kind", [RateLimited, EngineBusy])
async def test_question_is_held_until_it_is_welcome(kind: type[ChatError]) -> None:
    shown, respite = Shown(), Respite()
    respite.begin(kind(retry_after_seconds=1), Shown(), ENGLISH)
    respite.stop()
    await asyncio.wait_for(respite.hold(shown, ENGLISH), 5)
    assert respite.seconds_left == 0
    assert (await shown.next()) == "> Trying again in 1 s..."


@pytest.mark.parametrize(
    "error",
    [
        RateLimited(retry_after_seconds=MAX_HELD_SECONDS + 1),
        EngineNotReady(retry_after_seconds=30),
        RateLimited(),
    ],
)
async def test_question_is_not_held_for_long_nor_for_a_guess(error: ChatError) -> None:
    shown, respite = Shown(), Respite()
    respite.begin(error, Shown(), ENGLISH)
    respite.stop()
    await asyncio.wait_for(respite.hold(shown, ENGLISH), 1)
    assert shown.texts.empty()


async def test_hours_do_not_run_on_the_page() -> None:
    respite = Respite()
    respite.begin(RateLimited(retry_after_seconds=MAX_RUNNING_SECONDS + 1), Shown(), ENGLISH)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
