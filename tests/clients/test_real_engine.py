"""The clients against the whole stack: nginx, gateway, and a real vLLM that speaks for itself by its counters."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from tests.clients.driver import Ask, Clients
from tests.conftest import Stack

pytestmark = pytest.mark.stack

FREE_WITHIN_SECONDS = 5.0
MOST_TOKENS = 1500


@pytest.fixture
def question(questions: list[dict[str, Any]]) -> dict[str, Any]:
    """One message, answered word for word with characters of four bytes."""
    return next(case for case in questions if "emoji" in case["tags"] and len(case["messages"]) == 1)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_answers_are_exact(clients: Clients, stack: Stack, question: dict[str, Any], *, stream: bool) -> None:
    asks = [
        client.ask(stack.url, Ask(stream=stream, usage=stream, content=question["messages"][0]["content"]))
        for client in clients
    ]
    answers = await asyncio.gather(*asks)
    assert [(told.text, told.failure) for told in answers] == [(question["answer"], None)] * len(asks)
    assert len({told.usage for told in answers}) == 1
    prompt, completion = answers[0].usage or (0, 0)
    assert prompt > 1
    assert completion > 1


async def test_leaving_frees_the_engine_by_its_own_counters(
    clients: Clients, stack: Stack, http: httpx.AsyncClient
) -> None:
    async def counter(port: str, name: str) -> float:
        page = (await http.get(f"http://127.0.0.1:{stack.ports[port]}/metrics")).text
        return sum(
            float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
        )

    async def wait_until_idle() -> None:
        async with asyncio.timeout(FREE_WITHIN_SECONDS):
            while True:
                if not await counter("ENGINE_PORT", "vllm:num_requests_running"):
                    return
                await asyncio.sleep(0.02)

    ask = Ask(stream=True, stop_after=1, closes=True, extra={"ignore_eos": True, "max_tokens": MOST_TOKENS})
    for client in clients:
        before = await counter("ENGINE_PORT", "vllm:generation_tokens_total")
        told = await client.ask(stack.url, ask)
        assert told.failure is None, client.name
        assert len(told.texts) == 1, client.name
        await wait_until_idle()
        generated = await counter("ENGINE_PORT", "vllm:generation_tokens_total") - before
        assert 0 < generated < MOST_TOKENS, (client.name, "the engine went on to the end")
