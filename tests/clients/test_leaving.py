"""Every way in which a client's user gives up frees the engine within a second."""

import asyncio
import gc

import httpx
import openai
import pytest
from langchain_openai import StreamChunkTimeoutError

from tests.clients.driver import Ask, Clients, url_of
from tests.clients.langchain_sdk import LangChain
from tests.fakes.engine import TEXT, FakeEngine, Script, after_events, hold
from tests.fakes.gateway import NO_TLS, STREAMED, RunningGateway, assert_quiescent, running_gateway

pytestmark = pytest.mark.process

FREE_WITHIN_SECONDS = 1.0


async def assert_freed(engine: FakeEngine, gateway: RunningGateway, clients: int) -> None:
    """The engine sees every client go, and all is as if they had never come."""
    assert len(engine.calls) == clients
    async with asyncio.timeout(FREE_WITHIN_SECONDS):
        await asyncio.gather(*(call.disconnected.wait() for call in engine.calls))
    await assert_quiescent(gateway, engine)
    route = "chat_completions"
    assert await gateway.metric("gateway_requests_total", route=route, outcome="disconnected") == clients


@pytest.mark.parametrize("closes", [False, True], ids=["plain break", "closed"])
async def test_break_out_of_a_stream(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway, *, closes: bool
) -> None:
    engine.script = after_events(1, hold)
    told = await clients.ask(url_of(gateway), Ask(stream=True, stop_after=1, closes=closes))
    if not closes:
        # The Python SDK's stream is part of a cycle: after a plain `break` it lives on until it is collected.
        gc.collect()
    assert {name: (one.texts, one.failure) for name, one in told.items()} == clients.all(([TEXT[0]], None))
    await assert_freed(engine, gateway, len(told))


@pytest.mark.parametrize(
    ("script", "stream"),
    [(hold, True), (after_events(0, hold), True), (hold, False)],
    ids=["streamed, no headers yet", "streamed, headers only", "whole"],
)
async def test_abort_before_the_first_token(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway, script: Script, *, stream: bool
) -> None:
    engine.script = script
    asking = asyncio.create_task(clients.ask(url_of(gateway), Ask(stream=stream)))
    number = len(list(clients))
    await engine.next_call(number)
    asking.cancel()
    await assert_freed(engine, gateway, number)
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("stream", [True, False])
async def test_timeout_before_the_first_token(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway, *, stream: bool
) -> None:
    engine.script = hold
    told = await clients.ask(url_of(gateway), Ask(stream=stream, timeout_seconds=0.5))
    assert {name: one.failure and one.failure.kind for name, one in told.items()} == {
        "python": "APITimeoutError",
        "node": "APIConnectionTimeoutError",
        "langchain": "OpenAITimeoutError",
    }
    await assert_freed(engine, gateway, len(told))


async def test_end_of_the_with_block_of_pythons_synchronous_stream(engine: FakeEngine, gateway: RunningGateway) -> None:
    def ask(sdk: openai.OpenAI) -> None:
        with sdk.chat.completions.create(**STREAMED) as stream:  # type: ignore[call-overload]
            assert next(stream).choices[0].delta.content == TEXT[0]

    engine.script = after_events(1, hold)
    with httpx.Client(trust_env=False, verify=NO_TLS) as http:
        sdk = openai.OpenAI(base_url=f"{url_of(gateway)}/v1", api_key="none", http_client=http)
        await asyncio.to_thread(ask, sdk)
        await assert_freed(engine, gateway, 1)


async def test_langchain_counts_texts_only_and_frees_the_engine_when_none_comes(
    langchain: LangChain, engine: FakeEngine
) -> None:
    engine.script = after_events(1, hold)
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.05") as gateway:
        model = langchain.model(url_of(gateway), Ask(), stream_chunk_timeout=0.3)
        with pytest.raises(StreamChunkTimeoutError):
            [chunk async for chunk in model.astream("你好")]
        await assert_freed(engine, gateway, 1)
