"""What admission decides and what it costs: `python -m bench.admission.run [capacity|fairness|cost] ...`.

    capacity [--engine http://127.0.0.1:8000]  which signal says best how many an engine runs (modelled, or a real vLLM)
    fairness                                   Jain's index and the flood, against first come first served
    cost                                       microseconds of a request that finds room, and of one in a long queue

Everything in one process, on real sockets, limits off. Prints Markdown; `--keep FILE` writes the figures as JSON.
"""

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from gateway.admission import Admission, EngineFigures, NumberInAll
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Generation
from gateway.upstreams import Engine, Load, State, Upstreams
from prometheus_client import CollectorRegistry

from bench.admission import gradient
from bench.admission.engine import ModelledEngine
from bench.admission.load import Asker, ask_for, jain
from tests.fakes.gateway import RunningGateway, eventually, running_gateway

SEQUENCES, STEP_SECONDS = 16, 0.04
POLITE = tuple(f"203.0.113.{number}" for number in range(1, 10))
GREEDY = "198.51.100.1"
WARM_SECONDS = 6.0
START_SECONDS = 60.0
SETTINGS = {"GATEWAY_QUEUE_SIZE": "256", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "120", "GATEWAY_PROBE_INTERVAL_SECONDS": "2"}


class Elsewhere:
    """An engine that somebody else has started."""

    def __init__(self, url: str) -> None:
        self.url = url


@asynccontextmanager
async def gateway_with(policy: str, engine: Any) -> AsyncIterator[RunningGateway]:
    """Serve a gateway that decides by `off`, a number, `figures` or `gradient`."""
    in_flight = {"figures": "", "gradient": "off"}.get(policy, policy)
    settings = SETTINGS | {"GATEWAY_MAX_IN_FLIGHT": in_flight}
    async with running_gateway(engine, wait=False, **settings) as gateway:
        await eventually(lambda: gateway.parts.upstreams.ready, START_SECONDS)
        if policy == "gradient":
            gradient.install(gateway.parts.admission)
        yield gateway


async def measured(policy: str, engine: Any, askers: list[Asker], seconds: float) -> dict[str, Any]:
    """Let clients ask through one gateway; return what each has got, what the engine had waiting and the limit."""
    waits: list[float] = []
    limits: list[float] = []
    async with gateway_with(policy, engine) as gateway:

        async def watch() -> None:
            async with aiohttp.ClientSession() as session:
                while True:
                    await asyncio.sleep(0.5)
                    async with session.get(f"{engine.url}/metrics") as page:
                        waits.append(_waiting(await page.text()))
                    limits.append(gateway.parts.admission._limit())  # noqa: SLF001

        watching = asyncio.create_task(watch())
        await ask_for(f"http://127.0.0.1:{gateway.port}", askers, WARM_SECONDS, seconds)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    kept = int(WARM_SECONDS * 2)
    polite = [asker for asker in askers if asker.address != GREEDY]
    times = [seconds for asker in polite for seconds in asker.first_tokens]
    return {
        "policy": policy,
        "tokens_a_second": sum(asker.answered_tokens for asker in askers) / seconds,
        # None where the flood left them none within the time.
        "polite_first_token_ms": statistics.median(times) * 1000 if times else None,
        "shares": {asker.address: asker.answered_tokens for asker in askers},
        "refused": {asker.address: asker.refused for asker in askers},
        "waiting_in_engine": statistics.fmean(waits[kept:] or [0.0]),
        "limit": statistics.fmean(limits[kept:] or [0.0]),
    }


def _waiting(page: str) -> float:
    return sum(
        float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith("vllm:num_requests_waiting{")
    )


async def capacity(url: str | None, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Compare the signals: one client with 48 streams, one that asks now and then."""
    found = []
    for number in range(rounds):
        for policy in ("off", str(SEQUENCES), "figures", "gradient"):
            askers = [Asker(GREEDY, streams=48, tokens=(20, 40, 60)), Asker(POLITE[0], rate=1.0, tokens=(20, 40, 60))]
            if url:
                row = await measured(policy, Elsewhere(url), askers, seconds)
            else:
                async with ModelledEngine(SEQUENCES, STEP_SECONDS) as engine:
                    row = await measured(policy, engine, askers, seconds)
            found.append({"round": number, **row})
            print(
                f"| {policy} | {row['tokens_a_second']:.0f} | {row['polite_first_token_ms'] or math.nan:.0f} "
                f"| {row['waiting_in_engine']:.1f} | {row['limit']:.1f} |",
                flush=True,
            )
    return found


async def fairness(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Compare the queue with first come first served: shares of work under a mixed load, and a flood."""
    found = []
    # 16 sequences of 25 tokens, 1 s each: 16 requests a second, 1.6 for each of ten.
    loads: dict[str, dict[str, Any]] = {
        "each at its share": {"streams": 2},
        "each at half of its share": {"rate": 0.8},
    }
    for number in range(rounds):
        for load, polite in loads.items():
            for policy in ("off", "figures"):
                for flood in (False, True):
                    greedy = {name: value * 50 for name, value in polite.items()} if flood else polite
                    askers = [*(Asker(address, **polite) for address in POLITE), Asker(GREEDY, **greedy)]
                    found.append(
                        {"round": number, "load": load, "flood": flood} | await _modelled(policy, askers, seconds)
                    )
                    _print_flood(found[-1])
        for policy in ("off", "figures"):
            mixed = ((5,), (10, 50), (25,), (100,), (25, 100), (5, 10), (50,), (10,), (200,))
            askers = [Asker(address, streams=4, tokens=tokens) for address, tokens in zip(POLITE, mixed, strict=True)]
            askers.append(Asker(GREEDY, streams=200, tokens=(25, 100)))
            row = await _modelled(policy, askers, seconds * 2)
            index = jain(list(row["shares"].values()))
            found.append({"round": number, "load": "mixed", "flood": True, "jain": index} | row)
            _print_flood(found[-1])
    return found


async def _modelled(policy: str, askers: list[Asker], seconds: float) -> dict[str, Any]:
    async with ModelledEngine(SEQUENCES, STEP_SECONDS) as engine:
        return await measured(policy, engine, askers, seconds)


def _print_flood(row: dict[str, Any]) -> None:
    shares = list(row["shares"].values())
    first_token = row["polite_first_token_ms"] or math.nan
    print(
        f"| {row['load']} | {row['policy']} | {'yes' if row['flood'] else 'no'} | {first_token:.0f} "
        f"| {jain(shares):.3f} | {row['tokens_a_second']:.0f} | {sum(row['refused'].values())} |",
        flush=True,
    )


async def cost() -> list[dict[str, Any]]:
    """Time a request that finds room (CPU, median of 15 rounds of 500), and one turn in queues of many clients."""
    generation = Generation("/v1/chat/completions", b"x" * 200, stream=True, hide_usage=True, max_tokens=100)

    async def say_nothing(_place: int, _seconds_left: float | None) -> None:
        pass

    def exchange(client: str) -> Exchange:
        made = Exchange("r", "e", "chat_completions", "POST", time.perf_counter())
        made.client = client
        return made

    found = []
    upstreams = Upstreams(("http://engine:8000",))
    engine: Engine = upstreams.engines[0]
    engine.state = State.READY
    engine.load = Load(0.0, 0.0, 0)

    def admission(capacity: Any) -> Admission:
        return Admission(
            upstreams, Metrics(CollectorRegistry()), capacity, size=10_000, timeout_seconds=600, tell_seconds=600
        )

    free = admission(EngineFigures())
    rounds = []
    for _ in range(15):
        began_at = time.thread_time()
        for number in range(500):
            asked = exchange(f"client-{number % 50}")
            with await free.admit(asked, generation, say_nothing):
                asked.completion_tokens = 20
        rounds.append((time.thread_time() - began_at) / 500 * 1e6)
    found.append({"what": "a request that finds room, its record included", "us": statistics.median(rounds)})
    for waiting, clients in ((256, 10), (256, 256), (10_000, 10), (10_000, 10_000)):
        full = admission(NumberInAll(1))

        async def ask(client: str, full: Admission = full) -> None:
            with await full.admit(exchange(client), generation, say_nothing):
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(ask(f"client-{number % clients}")) for number in range(waiting + 1)]
        await asyncio.sleep(0)
        began_at = time.thread_time()
        await asyncio.gather(*tasks)
        us = (time.thread_time() - began_at) / waiting * 1e6
        found.append({"what": f"a turn, {waiting} waiting at first, of {clients} clients", "us": us})
    for row in found:
        print(f"| {row['what']} | {row['us']:.1f} |", flush=True)
    return found


def main() -> None:
    """Measure one thing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("capacity", "fairness", "cost"))
    parser.add_argument("--engine", help="base URL of a vLLM; else one is modelled")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "capacity":
        run = capacity(arguments.engine, arguments.seconds, arguments.rounds)
    elif arguments.what == "fairness":
        run = fairness(arguments.seconds, arguments.rounds)
    else:
        run = cost()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run)
    if arguments.keep:
        arguments.keep.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
