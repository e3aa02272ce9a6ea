"""The chat page is a client too: one question of a person is one generation, however the engine fails at it."""

import asyncio
from contextlib import aclosing

import pytest
from chat_ui.errors import AnswerCut, AnswerTimedOut, ChatError, EngineBusy, UpstreamFailed
from chat_ui.gateway import Finish, Gateway, Piece
from chat_ui.gateway_key import GatewayKey

from tests.clients.driver import url_of
from tests.fakes.engine import TEXT, Call, FakeEngine, Script, after_events, hold
from tests.fakes.gateway import RunningGateway, assert_quiescent, first_token, running_gateway

pytestmark = pytest.mark.process

QUESTION = [{"role": "user", "content": "你好"}]


def refuse(status: int) -> Script:
    async def script(call: Call) -> None:
        call.whole(status, b'{"error":{"message":"words","type":"T","param":null,"code":1}}', {"retry-after": "1"})

    return script


FAULTS: dict[str, tuple[Script, type[ChatError], list[str]]] = {
    "no first token in time": (hold, AnswerTimedOut, []),
    "full": (refuse(503), EngineBusy, []),
    "failed": (refuse(500), UpstreamFailed, []),
    "cut": (after_events(2, Call.fin), AnswerCut, list(TEXT[:2])),
}


@pytest.mark.parametrize(("script", "kind", "words"), FAULTS.values(), ids=FAULTS)
async def test_question_that_fails_is_generated_once_and_told(
    engine: FakeEngine, script: Script, kind: type[ChatError], words: list[str]
) -> None:
    shown: list[Piece | Finish] = []

    async def ask(page: Gateway) -> None:
        async for piece in page.stream_answer("ernie-demo", QUESTION, {"max_tokens": 9}, {}):
            shown.append(piece)  # noqa: PERF401  (what came before the error counts)

    engine.script = script
    async with running_gateway(engine, **first_token(0.2)) as gateway:
        page = Gateway(url_of(gateway), GatewayKey(""), connect_timeout_seconds=5, idle_timeout_seconds=5)
        with pytest.raises(kind):
            await ask(page)
        await page.close()
        assert shown == [Piece(text) for text in words]
        assert len(engine.calls) == 1
        await assert_quiescent(gateway, engine)


async def test_person_who_stops_frees_the_engine(engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = after_events(1, hold)
    page = Gateway(url_of(gateway), GatewayKey(""), connect_timeout_seconds=5, idle_timeout_seconds=5)
    answer = page.stream_answer("ernie-demo", QUESTION, {"max_tokens": 9}, {})
    async with aclosing(answer):
        assert await anext(answer) == Piece(TEXT[0])
    async with asyncio.timeout(1):
        await engine.calls[0].disconnected.wait()
    await page.close()
    await assert_quiescent(gateway, engine)
