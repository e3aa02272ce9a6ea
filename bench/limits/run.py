"""What telling clients apart and counting them costs: `python -m bench.limits.run [--valkey redis://127.0.0.1:6379]`.

Prints one Markdown table: microseconds of a request (identity, reserve, settle, headers), the memory of a million
clients, and how many requests pass through 1, 2 and 4 gateways at a limit of 1,000 a minute. Takes a minute.
"""

import argparse
import asyncio
import gc
import ipaddress
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.identity import Identity
from gateway.limits import Ledger, Limits, MemoryLedger
from gateway.limits.ledger import Claim
from gateway.limits.valkey import SharedLedger
from gateway.metrics import Metrics
from gateway.rates import Allowance, Rate
from gateway.schemas import Client, Exchange, Generation
from prometheus_client import CollectorRegistry

ROUNDS, REQUESTS = 15, 500
MANY = Allowance(Rate(1_000_000_000, 60.0), Rate(1_000_000_000, 60.0), 1_000_000)
EXACT = Allowance(Rate(1000, 60.0), None, None)
GENERATION = Generation("/v1/chat/completions", b"x" * 200, stream=True, hide_usage=True, max_tokens=100)
SCOPE = {
    "client": ("127.0.0.1", 4711),
    "headers": [
        (b"host", b"example.org"),
        (b"user-agent", b"bench"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-unused"),
        (b"x-forwarded-for", b"203.0.113.7"),
    ],
}
PAGE_BYTES = 4096


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def ended() -> Exchange:
    """Return the record of a request as it is when all is over."""
    exchange = Exchange("r", "e", "chat_completions", "POST", 0.0)
    exchange.prompt_tokens, exchange.completion_tokens = 7, 5
    return exchange


async def microseconds(step: Callable[[Exchange], Awaitable[None]], clock: Callable[[], float]) -> float:
    """Return the median over rounds of what one step takes, the making of the request's record included (0.5 µs)."""
    rounds = []
    for _ in range(ROUNDS):
        began_at = clock()
        for _ in range(REQUESTS):
            await step(ended())
        rounds.append((clock() - began_at) / REQUESTS * 1e6)
    return statistics.median(rounds)


async def cost_in_memory(allowance: Allowance, *, full: bool) -> float:
    """Return the CPU time of a request, of a client that is new or whose window is full of moments."""
    trusted = (ipaddress.ip_network("127.0.0.0/8"),)
    identity = Identity(trusted, allowance, keys=None, chat_ui_key=b"k" * 43, anonymous=False)
    clock = Clock()
    limits = Limits(MemoryLedger(clock), Metrics(CollectorRegistry()))

    async def step(exchange: Exchange) -> None:
        grant = await limits.reserve(exchange, identity.client_of(SCOPE), GENERATION)
        limits.settle(grant, exchange, GENERATION)

    for _ in range(60 if full else 0):
        clock.now += 1
        await step(ended())
    return await microseconds(step, time.thread_time)


async def cost_in_valkey(url: str) -> tuple[float, float]:
    """Return the time of a request that waits for Valkey, alone and as one of 64 at once."""
    ledger = SharedLedger(url, MemoryLedger())
    await ledger.start()
    if ledger.degraded:
        raise SystemExit(f"no Valkey answers at {url}")
    limits = Limits(ledger, Metrics(CollectorRegistry()))
    client = Client("bench", MANY)

    async def step(exchange: Exchange) -> None:
        limits.settle(await limits.reserve(exchange, client, GENERATION), exchange, GENERATION)

    async def steps(_exchange: Exchange) -> None:
        await asyncio.gather(*(step(ended()) for _ in range(64)))

    alone = await microseconds(step, time.perf_counter)
    began_at = time.perf_counter()
    for _ in range(30):
        await steps(ended())
    together = (time.perf_counter() - began_at) / 30 / 64 * 1e6
    await ledger.stop()
    return alone, together


async def memory_of_a_million(form: str) -> float:
    """Return the resident megabytes of a million clients that each asked once."""
    ledger: Ledger = MemoryLedger()
    allowance = Allowance(Rate(120, 3600.0), Rate(200_000, 3600.0), 16)
    gc.collect()
    before = resident()
    for number in range(1_000_000):
        name = form.format(number >> 16, number >> 8 & 255, number & 255)
        ledger.settle(await ledger.reserve(Claim(name, allowance, 2300)), 400)
    return (resident() - before) / 1e6


def megabytes(form: str) -> float:
    """Measure in a process of its own, whose memory nobody has used before."""
    return asyncio.run(memory_of_a_million(form))


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def passed(url: str, client: str, number: int) -> int:
    """Ask so often as one gateway of several, in a process of its own; return how often it was granted."""

    async def flood() -> int:
        ledger = SharedLedger(url, MemoryLedger())
        await ledger.start()
        granted = 0
        for _ in range(number // 20):
            grants = await asyncio.gather(*(ledger.reserve(Claim(client, EXACT, 0)) for _ in range(20)))
            granted += sum(grant.verdict.granted for grant in grants)
        await ledger.stop()
        return granted

    return asyncio.run(flood())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--valkey", default="", help="what GATEWAY_STATE_URL would be")
    url = parser.parse_args().valkey
    rows = [
        ("limits off (identity alone), CPU", f"{asyncio.run(cost_in_memory(Allowance(), full=False)):.1f} µs"),
        ("in memory, a client's first requests, CPU", f"{asyncio.run(cost_in_memory(MANY, full=False)):.1f} µs"),
        (
            "in memory, a client with 60 moments in each window, CPU",
            f"{asyncio.run(cost_in_memory(MANY, full=True)):.1f} µs",
        ),
    ]
    if url:
        alone, together = asyncio.run(cost_in_valkey(url))
        rows += [
            ("Valkey, one after the other, time", f"{alone:.0f} µs"),
            ("Valkey, 64 at once, time of each", f"{together:.0f} µs"),
        ]
        for gateways in (1, 2, 4):
            with multiprocessing.get_context("spawn").Pool(gateways) as pool:
                client = f"exact-{gateways}-{time.time_ns()}"
                granted = pool.starmap(passed, [(url, client, 2000)] * gateways)
            rows.append((f"{gateways} gateways, {2000 * gateways} requests, limit 1,000", f"{sum(granted)} passed"))
    for name, form in (("IPv4", "11.{}.{}.{}"), ("IPv6 /64s", "2001:db8:{:x}:{:x}{:02x}::/64")):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append((f"a million clients, {name}, resident", f"{pool.apply(megabytes, [form]):.0f} MB"))
    print("| what | figure |\n|---|---|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
