"""The fault lab itself: its table meets the contract, and its scorecard can tell a failure from a success."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import yaml

from tests.conftest import ROOT
from tests.fakes.events import MODEL
from tests.fakes.gateway import running_gateway
from tests.fakes.lab.client import Answer, ask, chat, send
from tests.fakes.lab.engine import FaultEngine, Switchboard
from tests.fakes.lab.faults import FAULTS
from tests.fakes.lab.modes import MODES, SOUND
from tests.fakes.lab.native import SHORT_TIMES
from tests.fakes.lab.report import print_rows
from tests.fakes.lab.scorecard import Lab, Row, running, score_answer, score_fault, until
from tests.fakes.lab.sees import DONE, WHOLE, blemishes, broken, refused, seen

SLOW = ("slow-first-byte", "never-answers", "silent-after-head", "pause-mid-stream", "silence-mid-stream")


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """A lab whose gateway is missing: both addresses are the engine's own."""
    engine = FaultEngine()
    switchboard = Switchboard(engine)
    await engine.start()
    await switchboard.server.start()
    yield Lab(engine.url, f"http://127.0.0.1:{switchboard.server.port}")
    await switchboard.server.stop()
    await engine.stop()


async def test_every_fault_of_one_answer_meets_the_contract(lab: Lab) -> None:
    async with running_gateway(GATEWAY_UPSTREAMS=lab.gateway, **SHORT_TIMES) as gateway:
        through = Lab(f"http://127.0.0.1:{gateway.port}", lab.switchboard)
        slow, rest = [FAULTS[name] for name in SLOW], [FAULTS[name] for name in FAULTS if name not in SLOW]
        rows = await asyncio.gather(*(score_fault(through, fault) for fault in slow))
        # One after the other: a fault that closes its connection unannounced is no other request's fault.
        rows += [await score_fault(through, fault) for fault in rest]
        assert sum(len(pair) for pair in rows) > 75
        assert [row for pair in rows for row in pair if row.complaints] == []


@pytest.mark.parametrize("name", ["reset-mid-stream", "eof-without-done", "garbage", "gzip", "status-500"])
async def test_scorecard_fails_what_is_passed_on_as_it_is(lab: Lab, name: str) -> None:
    fault = FAULTS[name]
    assert fault.streamed is not None
    assert fault.whole is not None
    streamed, whole = await asyncio.gather(
        score_answer(lab, fault, fault.streamed, stream=True), score_answer(lab, fault, fault.whole, stream=False)
    )
    assert streamed.complaints
    assert whole.complaints


async def test_scorecard_tells_the_engine_that_was_asked_twice(lab: Lab) -> None:
    async with running_gateway(GATEWAY_UPSTREAMS=lab.gateway) as gateway:
        through = Lab(f"http://127.0.0.1:{gateway.port}", lab.switchboard)
        rows, _ = await asyncio.gather(
            score_fault(through, FAULTS["slow-first-byte"]), ask_for(through.gateway, "slow-first-byte")
        )
        assert [row.complaints for row in rows] == [[], ["the engine was asked 3 times for 2"]]


async def test_one_failure_is_exit_code_1_and_so_is_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    async def rows(*complaints: list[str]) -> AsyncIterator[Row]:
        for complaint in complaints:
            yield Row("some", "", "whole", complaints=complaint)

    assert await print_rows(rows([], [])) == 0
    assert await print_rows(rows([], ["wrong"])) == 1
    assert await print_rows(rows()) == 1
    assert "2 faults, 1 ok, 1 FAILED" in capsys.readouterr().out


HEAD = [("x-request-id", "1"), ("content-length", "1")]
STREAM_HEAD = [*HEAD, ("content-type", "text/event-stream")]
ERROR = b'data: {"error":{"message":"m","type":"t","param":null,"code":"c"}}\n\n'
TEXT = 'data: {"choices":[{"delta":{"content":"你好"}}]}\n\n'.encode()
BLEMISHED = {
    "two ends": (Answer(200, STREAM_HEAD, TEXT + ERROR + b"data: [DONE]\n\n", complete=True), "1 times in an error"),
    "no end": (Answer(200, STREAM_HEAD, TEXT, complete=True), "0 times in an error"),
    "after the end": (Answer(200, STREAM_HEAD, ERROR + TEXT, complete=True), "goes on after its end"),
    "foreign text": (Answer(200, STREAM_HEAD, TEXT * 2 + ERROR, complete=True), "holds the text"),
    "cut text": (Answer(200, STREAM_HEAD, TEXT + b"data: [DONE]\n\n", complete=True), "holds the text"),
    "cut": (Answer(200, STREAM_HEAD, TEXT), "before it was complete"),
    "bare error": (Answer(502, HEAD, b"oops", complete=True), "OpenAI shape"),
    "address": (Answer(502, HEAD, ERROR[6:].replace(b'"m"', b'"at 10.0.0.1"'), complete=True), "inner address"),
    "no retry-after": (Answer(503, HEAD, ERROR[6:], complete=True), "Retry-After"),
    "no id": (Answer(502, HEAD[1:], ERROR[6:], complete=True), "x-request-id"),
    "two framings": (Answer(502, [*HEAD, ("transfer-encoding", "chunked")], ERROR[6:], complete=True), "framing"),
}


@pytest.mark.parametrize(("answer", "words"), BLEMISHED.values(), ids=BLEMISHED.keys())
def test_no_blemish_goes_unseen(answer: Answer, words: str) -> None:
    assert words in " ".join(blemishes(answer))


def test_answers_in_few_words() -> None:
    assert str(seen(Answer(200, STREAM_HEAD, TEXT + ERROR))) == str(broken("c")) == "200 stream, error event c"
    assert seen(Answer(200, STREAM_HEAD, b"data: [DONE]\n\n")) == DONE
    assert seen(Answer(502, HEAD, ERROR[6:])) == refused(502, "c")
    assert str(WHOLE) == "200 whole"


async def test_fault_is_named_by_model_or_by_message(lab: Lab) -> None:
    assert (await ask_for(lab.gateway, "status-418")).status == 418
    assert (await ask_for(lab.gateway, "no-such-fault")).status == 404
    typed = {"model": MODEL, "messages": [{"role": "user", "content": " status-404\n"}]}
    assert (await ask(lab.gateway, "/v1/chat/completions", typed)).status == 404
    listed = {model["id"] for model in (await ask(lab.gateway, "/v1/models")).json["data"]}
    assert {MODEL, *FAULTS} <= listed


async def test_engine_logs_what_it_got_and_when_its_peer_left(lab: Lab) -> None:
    conversation = await chat(lab.gateway, "never-answers", stream=True)
    await until(lambda: running(lab), 5)
    left_at = time.time()
    conversation.leave()
    await until(lambda: left(lab), 5)
    [call] = (await lab.control())["calls"]
    assert call["names"] == "never-answers"
    assert call["received_at"] < left_at <= call["disconnected_at"] <= time.time()
    answered = (await ask_for(lab.gateway, MODEL)).status
    assert answered == 200
    assert (await lab.control())["calls"][-1]["disconnected_at"] is None


async def test_every_mode_can_be_entered_and_left(lab: Lab) -> None:
    for mode in [*MODES, SOUND]:
        assert (await lab.switch(mode))["mode"] == mode
    assert seen(await ask_for(lab.gateway, MODEL)) == WHOLE
    assert (await ask(lab.switchboard, "/control", {"mode": "nonsense"})).status == 400


def test_compose_and_the_native_lab_use_the_same_times() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    times = {name: value for name, value in services["fault-gateway"]["environment"].items() if "SECONDS" in name}
    assert times == SHORT_TIMES


def test_page_for_operators_lists_every_fault() -> None:
    page = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
    assert [name for name in [*FAULTS, *MODES] if f"`{name}`" not in page] == []


async def left(lab: Lab) -> bool:
    return not await running(lab)


async def ask_for(url: str, model: str) -> Answer:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    return await (await send(url, "/v1/chat/completions", body)).answer()
