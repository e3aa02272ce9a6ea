"""Clients that ask: each by its own address, over streams, and what became of their requests."""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

# Not all at once, after a refusal.
AFTER_REFUSAL_SECONDS = 0.2
_OK = 200


@dataclass
class Asker:
    """One client: so many streams that ask again as soon as they are answered, or `rate` requests a second.

    `tokens` are the lengths of answers it asks for, in turn at random.
    """

    address: str
    streams: int = 0
    rate: float = 0.0
    tokens: tuple[int, ...] = (25,)
    first_tokens: list[float] = field(default_factory=list)
    answered_tokens: int = 0
    refused: int = 0

    @property
    def median_ms(self) -> float:
        """The median time until the first token, in milliseconds."""
        return statistics.median(self.first_tokens) * 1000 if self.first_tokens else float("nan")


async def ask_for(url: str, askers: Sequence[Asker], warm_seconds: float, seconds: float) -> None:
    """Let all ask for so long; only what begins and ends after the first `warm_seconds` is noted."""
    from_ = time.perf_counter() + warm_seconds
    until = from_ + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [
            asyncio.create_task(_ask_again(session, url, asker, from_))
            for asker in askers
            for _ in range(asker.streams)
        ]
        tasks += [asyncio.create_task(_ask_at_rate(session, url, asker, from_)) for asker in askers if asker.rate]
        await asyncio.sleep(until - time.perf_counter())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask_again(session: aiohttp.ClientSession, url: str, asker: Asker, from_: float) -> None:
    await asyncio.sleep(random.random())
    while True:
        if not await _ask(session, url, asker, from_):
            await asyncio.sleep(AFTER_REFUSAL_SECONDS)


async def _ask_at_rate(session: aiohttp.ClientSession, url: str, asker: Asker, from_: float) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(random.expovariate(asker.rate))
            group.create_task(_ask(session, url, asker, from_))


async def _ask(session: aiohttp.ClientSession, url: str, asker: Asker, from_: float) -> bool:
    tokens = random.choice(asker.tokens)
    body = {
        "messages": [{"role": "user", "content": f"{random.random()} Tell me a story."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    began_at = time.perf_counter()
    headers = {"content-type": "application/json", "x-forwarded-for": asker.address}
    async with session.post(f"{url}/v1/chat/completions", data=json.dumps(body), headers=headers) as response:
        if response.status != _OK:
            asker.refused += began_at >= from_
            return False
        first = 0.0
        async for line in response.content:
            if not first and line.startswith(b"data: {"):
                first = time.perf_counter() - began_at
                if began_at >= from_:
                    asker.first_tokens.append(first)
            # What is made counts when it is made: who asks for long answers is not to be counted by whole ones.
            if line.startswith(b"data: {") and time.perf_counter() >= from_:
                asker.answered_tokens += 1
    return True


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all have the same, 1/n if one has it all."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
