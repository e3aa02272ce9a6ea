"""What each client makes of sound answers: every character, the usage, and nothing of the comments between."""

import asyncio

import pytest

from tests.clients.driver import Ask, Clients, Told, url_of
from tests.clients.node_sdk import NodeSdk
from tests.clients.python_sdk import PythonSdk
from tests.fakes.engine import DONE, EVENTS, TEXT, Call, FakeEngine, usage_event
from tests.fakes.gateway import STREAMED, RunningGateway, running_gateway

pytestmark = pytest.mark.process

HEARTBEAT_SECONDS = 0.02
PARTS, WHOLE, USAGE = list(TEXT), ["".join(TEXT)], (7, 5)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (Ask(stream=True), Told(PARTS)),
        (Ask(stream=True, usage=True), Told(PARTS, USAGE)),
        (Ask(), Told(WHOLE, USAGE)),
    ],
    ids=["streamed", "streamed with usage", "whole"],
)
async def test_answer_is_what_the_engine_sent(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway, ask: Ask, expected: Told
) -> None:
    assert await clients.ask(url_of(gateway), ask) == clients.all(expected)
    assert sorted(call.json["messages"][0]["content"] for call in engine.calls) == ["langchain", "node", "python"]


async def test_legacy_completions(clients: Clients, engine: FakeEngine, gateway: RunningGateway) -> None:
    engine.script = complete
    streamed, whole = await asyncio.gather(
        clients.ask(url_of(gateway), Ask(legacy=True, stream=True)), clients.ask(url_of(gateway), Ask(legacy=True))
    )
    assert {name: (told.texts, told.failure) for name, told in streamed.items()} == clients.all((PARTS, None))
    assert {name: (told.texts, told.failure) for name, told in whole.items()} == clients.all((WHOLE, None))
    assert {call.path for call in engine.calls} == {"/v1/completions"}


async def complete(call: Call) -> None:
    """Answer a completion as vLLM does."""
    head = b'{"id":"cmpl-1","object":"text_completion","created":1,"model":"ernie-demo","choices":[{"index":0,"text":"'
    if call.json.get("stream"):
        call.stream_head()
        for text in TEXT:
            call.chunk(b"data: " + head + text.encode() + b'","logprobs":null,"finish_reason":null}]}\n\n')
        call.chunk(DONE)
        call.end()
        return
    usage = b'"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}}'
    call.whole(200, head + "".join(TEXT).encode() + b'","logprobs":null,"finish_reason":"stop"}],' + usage)


async def test_models(python_sdk: PythonSdk, node_sdk: NodeSdk, gateway: RunningGateway) -> None:
    for client in (python_sdk, node_sdk):
        assert await client.models(url_of(gateway)) == ["ernie-demo"]


async def test_comments_before_and_between_events_disturb_nobody(clients: Clients, engine: FakeEngine) -> None:
    async def slow(call: Call) -> None:
        call.stream_head()
        call.chunk(b": ping\n\n")
        await asyncio.sleep(5 * HEARTBEAT_SECONDS)
        for part in [*EVENTS[:1], b": ping\n\n", *EVENTS[1:]]:
            call.chunk(part)
        await asyncio.sleep(5 * HEARTBEAT_SECONDS)
        call.chunk(usage_event(7, 5) + DONE)
        call.end()

    engine.script = slow
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS=str(HEARTBEAT_SECONDS)) as gateway:
        raw, answers = await asyncio.gather(
            gateway.chat(STREAMED), clients.ask(url_of(gateway), Ask(stream=True, usage=True))
        )
    before, _, rest = raw.content.partition(b"data:")
    assert b": waiting\n\n" in before, "the test must see the comments that it is about"
    assert b": waiting\n\n" in rest
    assert answers == clients.all(Told(PARTS, USAGE))
