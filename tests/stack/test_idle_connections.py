"""A connection that was idle for as long as one of its ends keeps it costs no request."""

import asyncio
import random

import httpx
import pytest

from tests.conftest import Stack

pytestmark = pytest.mark.stack

CLIENTS = 60
# Around 3 s the gateway lets go of the engine, around 4 s nginx of the page, around 5 s vLLM of the gateway.
PAUSES_SECONDS = (2.9, 5.2)


async def test_requests_after_a_pause_are_answered(stack: Stack) -> None:
    chance = random.Random(5)  # noqa: S311  (pauses, not secrets)
    body = {"model": "ernie-demo", "messages": [{"role": "user", "content": "你好"}], "max_tokens": 1}
    statuses: list[int] = []

    async def ask_twice(client: httpx.AsyncClient) -> None:
        for pause in (chance.uniform(*PAUSES_SECONDS), 0):
            answer = await client.post("/v1/chat/completions", json=body)
            page = await client.get("/project/translations?language=zh-CN")
            statuses.extend((answer.status_code, page.status_code))
            await asyncio.sleep(pause)

    async with httpx.AsyncClient(base_url=stack.url, trust_env=False, timeout=60) as client:
        await asyncio.gather(*(ask_twice(client) for _ in range(CLIENTS)))
    assert statuses == [200] * CLIENTS * 4
