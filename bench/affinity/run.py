"""What a home for each conversation is worth: `python -m bench.affinity.run --gateway URL --engines URL URL …`.

Talks of several turns are held with engines that run already, in turns directly (each turn at the next engine) and
through the gateway before them. Prints one Markdown table: the share of prompt tokens that the engines found in their
caches, by their own counters, and the time to the first token from the second turn on.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import httpx

TIMEOUT_SECONDS = 120.0
ROUNDS = 3
AT_ONCE = 4
FIRST_WORDS, TURN_WORDS, ANSWER_TOKENS = 300, 40, 16
WORDS = ("engine", "gateway", "token", "cache", "page", "model", "answer", "question", "stream", "prompt", "limit")
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


@dataclass
class Found:
    """What one way has brought: seconds to first tokens of later turns, and prompt tokens asked for and found."""

    first_token_seconds: list[float] = field(default_factory=list)
    queries: float = 0.0
    hits: float = 0.0


def main(arguments: Sequence[str]) -> int:
    """Run as the arguments say and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.affinity.run", description=__doc__)
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--engines", required=True, nargs="+")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args(arguments)
    ways = {"each turn at the next engine": chosen.engines, "through the gateway": [chosen.gateway]}
    found = asyncio.run(run(ways, chosen.engines, chosen.conversations, chosen.turns))
    print("| way | prompt tokens found in a cache | first token of later turns, ms: p50 / p90 | turns |")
    print("| --- | --- | --- | --- |")
    for way, result in found.items():
        times = sorted(second * 1000 for second in result.first_token_seconds)
        p90 = times[int(len(times) * 0.9)]
        share = result.hits / result.queries
        print(f"| {way} | {share:.0%} | {statistics.median(times):.1f} / {p90:.1f} | {len(times)} |")
    return 0


async def run(ways: dict[str, list[str]], engines: Sequence[str], conversations: int, turns: int) -> dict[str, Found]:
    """Hold all talks on every way, the ways in turns, and return what each has brought."""
    found = {way: Found() for way in ways}
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        for number in range(ROUNDS):
            for way in sorted(ways, reverse=bool(number % 2)):
                before = await cache_counters(client, engines)
                targets, places = itertools.cycle(ways[way]), asyncio.Semaphore(AT_ONCE)
                talks = (talk(client, targets, places, turns) for _ in range(conversations))
                for times in await asyncio.gather(*talks):
                    found[way].first_token_seconds += times
                after = await cache_counters(client, engines)
                found[way].queries += after[0] - before[0]
                found[way].hits += after[1] - before[1]
                sys.stderr.write(f"round {number + 1} of {ROUNDS}: {way}\n")
    return found


async def talk(client: httpx.AsyncClient, targets: Iterator[str], places: asyncio.Semaphore, turns: int) -> list[float]:
    """Hold one talk, unlike any other, and return the seconds to the first token of all turns but the first."""
    messages = [{"role": "user", "content": words(FIRST_WORDS)}]
    times = []
    async with places:
        for _ in range(turns):
            seconds, answer = await ask(client, next(targets), messages)
            times.append(seconds)
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": words(TURN_WORDS)}]
    return times[1:]


def words(count: int) -> str:
    """Return a text of so many words."""
    return " ".join(random.choices(WORDS, k=count))


async def ask(client: httpx.AsyncClient, base_url: str, messages: list[dict[str, str]]) -> tuple[float, str]:
    """Return the seconds to the first token of an answer, and its text."""
    body = {"model": "ernie-demo", "messages": messages, "max_tokens": ANSWER_TOKENS, "stream": True}
    began_at, seconds, pieces = time.perf_counter(), 0.0, []
    async with client.stream("POST", f"{base_url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line.removeprefix("data: "))["choices"]
            if choices and (piece := choices[0]["delta"].get("content")):
                seconds = seconds or time.perf_counter() - began_at
                pieces.append(piece)
    return seconds, "".join(pieces)


async def cache_counters(client: httpx.AsyncClient, engines: Sequence[str]) -> tuple[float, float]:
    """Return the prompt tokens that all engines have looked up in their caches so far, and those that they found."""
    sums = dict.fromkeys((QUERIES, HITS), 0.0)
    for engine in engines:
        for line in (await client.get(f"{engine}/metrics")).text.splitlines():
            name = line.partition("{")[0]
            if name in sums:
                sums[name] += float(line.rpartition(" ")[2])
    return sums[QUERIES], sums[HITS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
