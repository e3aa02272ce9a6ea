"""nginx before the real gateway: silence that the gateway bridges is never cut, and what is cut is not asked twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.edge.server import Edge
from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, answer, hold
from tests.fakes.gateway import CHAT, NO_TLS, STREAMED, events_in, running_gateway

pytestmark = pytest.mark.edge

# nginx moves a timer only by steps of 0.3 s; a shorter limit would cut whatever comes.
READ_TIMEOUT_SECONDS = 0.7
SILENCE_SECONDS = 1.0
# Above the 5 s that HTTP clients, uvicorn and aiohttp among them, are fond of.
SLOW_FIRST_BYTE_SECONDS = 5.5


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as fake:
        yield fake


@contextlib.contextmanager
def started(edge: Edge) -> Iterator[str]:
    """Serve by this nginx, and give its address."""
    edge.start()
    try:
        yield edge.url
    finally:
        assert edge.stop() == 0


@pytest.fixture
async def impatient(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an impatient nginx before a gateway that sends heartbeats often enough for it."""
    async with running_gateway(engine, GATEWAY_HEARTBEAT_SECONDS="0.1") as gateway:
        edge = Edge(tmp_path, gateway.port)
        edge.shorten("snippets/stream.conf", "proxy_read_timeout", f"{int(READ_TIMEOUT_SECONDS * 1000)}ms")
        with started(edge) as url:
            yield url


async def test_a_stream_outlasts_silences_longer_than_nginx_waits(engine: FakeEngine, impatient: str) -> None:
    async def slow(call: Call) -> None:
        call.stream_head()
        for part in [EVENTS[0], EVENTS[-1] + DONE]:
            await asyncio.sleep(SILENCE_SECONDS)
            call.chunk(part)
        call.end()

    engine.script = slow
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS, timeout=10) as client:
        answer = await client.post(f"{impatient}/v1/chat/completions", json=STREAMED)
    assert answer.status_code == 200
    assert events_in(answer.content) == [EVENTS[0], EVENTS[-1], DONE]


async def test_a_whole_answer_that_is_cut_is_not_generated_again(engine: FakeEngine, impatient: str) -> None:
    """The OpenAI SDK repeats a 504 unless told not to: three generations for one question."""
    engine.script = hold
    async with (
        httpx.AsyncClient(trust_env=False, verify=NO_TLS) as http,
        openai.AsyncOpenAI(base_url=f"{impatient}/v1", api_key="none", max_retries=2, http_client=http) as sdk,
    ):
        with pytest.raises(openai.InternalServerError) as raised:
            await sdk.chat.completions.create(model="ernie-demo", messages=[{"role": "user", "content": "你好"}])
    assert (raised.value.status_code, raised.value.code) == (504, "gateway_timeout")
    async with asyncio.timeout(1):
        await engine.calls[0].disconnected.wait()
    assert len(engine.calls) == 1


async def test_a_slow_first_byte_is_waited_for_by_everybody(engine: FakeEngine, tmp_path: Path) -> None:
    async def slow(call: Call) -> None:
        await asyncio.sleep(SLOW_FIRST_BYTE_SECONDS)
        await answer(call)

    engine.script = slow
    async with (
        running_gateway(engine) as gateway,
        httpx.AsyncClient(trust_env=False, verify=NO_TLS, timeout=20) as http,
    ):
        with started(Edge(tmp_path, gateway.port)) as url:
            address = f"{url}/v1/chat/completions"
            whole, streamed = await asyncio.gather(http.post(address, json=CHAT), http.post(address, json=STREAMED))
    assert whole.json()["choices"][0]["message"]["content"] == "你好, world 🔥"
    assert streamed.content == b"".join([*EVENTS, DONE])
    assert len(engine.calls) == 2
