"""Admission and the limits as they are, before an engine that is calculated, in time that jumps from event to event.

Minutes take seconds and nothing else on the machine matters; there are no sockets, so what HTTP costs is not in it.
"""

import asyncio
import random
import selectors
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from gateway.admission import Admission, EngineFigures
from gateway.errors import GatewayError
from gateway.limits import Limits, MemoryLedger
from gateway.metrics import Metrics
from gateway.rates import Allowance
from gateway.schemas import Client, Exchange, Generation
from gateway.upstreams import Engine, Load, State, Upstreams
from gateway.upstreams.status import EngineStatus
from prometheus_client import CollectorRegistry

# As readiness looks: at its interval, and a quarter of a second after it is asked to.
LOOK_SECONDS, ASKED_LOOK_SECONDS = 2.0, 0.25
TOKENS = 25
GENERATION = Generation("/v1/chat/completions", b"x" * 64, stream=True, hide_usage=True, max_tokens=TOKENS)


class _Jump(selectors.SelectSelector):
    """Waits for nothing, and moves the clock on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return self._jump.now


@contextmanager
def clock_of(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let admission have a loop's clock."""
    clock = SimpleNamespace(monotonic=loop.time, perf_counter=loop.time)
    with (
        patch("gateway.admission.admission.time", clock),
        patch("gateway.admission.shares.time", clock),
        patch("gateway.admission.capacity.time", clock),
    ):
        yield


@dataclass
class Asker:
    """A client with `rate` requests a second, at random; `counted` are those whose first-token times matter."""

    name: str
    rate: float
    counted: bool = True
    first_tokens: list[float] = field(default_factory=list)
    refused: int = 0


@dataclass(frozen=True)
class Machine:
    """An engine: so many sequences, and how long a step takes, by itself and for each sequence in it."""

    sequences: int
    step_seconds: float
    sequence_seconds: float = 0.0


class _Sequence:
    def __init__(self) -> None:
        self.made = 0
        self.first = asyncio.Event()
        self.ended = asyncio.Event()


class _Engine:
    """The calculated engine, with readiness' looks at it."""

    def __init__(self, machine: Machine, known: Engine, admission: Admission) -> None:
        self._machine = machine
        self._known = known
        self._admission = admission
        self._queue: deque[_Sequence] = deque()
        self._batch: list[_Sequence] = []
        self._work = asyncio.Event()
        # As vLLM publishes it: what the last step left waiting.
        self._waiting = 0
        self.batches: list[int] = []
        self.looks = 0

    def ask(self) -> _Sequence:
        """Queue a sequence."""
        sequence = _Sequence()
        self._queue.append(sequence)
        self._work.set()
        return sequence

    async def step_on(self) -> None:
        """Make a token of each sequence in every step."""
        while True:
            while self._queue and len(self._batch) < self._machine.sequences:
                self._batch.append(self._queue.popleft())
            self._waiting = len(self._queue)
            if not self._batch:
                self._work.clear()
                await self._work.wait()
                continue
            self.batches.append(len(self._batch))
            await asyncio.sleep(self._machine.step_seconds + self._machine.sequence_seconds * len(self._batch))
            for sequence in self._batch:
                sequence.made += 1
                sequence.first.set()
                if sequence.made == TOKENS:
                    sequence.ended.set()
            self._batch = [sequence for sequence in self._batch if sequence.made < TOKENS]
            # What has ended is followed by what was waiting for it before the next step, as when HTTP is fast.
            await asyncio.sleep(1e-4)

    async def look(self) -> None:
        """Look at it as readiness does."""
        while True:
            self.looks += 1
            self._known.load = Load(self._waiting, len(self._batch), self._known.outstanding)
            self._admission.wake()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._known.attention.wait()
                await asyncio.sleep(ASKED_LOOK_SECONDS)
            except TimeoutError:
                pass
            self._known.attention.clear()


def crowd(machine: Machine, number: int, *, told: bool) -> tuple[float, int]:
    """Let so many ask a fresh gateway at once; return the seconds until the last has its first token, and the looks."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner, clock_of(runner.get_loop()):
        return runner.run(_crowd(machine, number, told=told))


async def _crowd(machine: Machine, number: int, *, told: bool) -> tuple[float, int]:
    engine, admission = _fresh(machine, told=told, size=number)

    async def ask() -> None:
        exchange = Exchange("r", "e", "chat_completions", "POST", 0.0)
        exchange.client = "crowd"
        with await admission.admit(exchange, GENERATION, _say_nothing):
            await engine.ask().first.wait()
            first_tokens.append(asyncio.get_running_loop().time())
            await asyncio.sleep(600)

    first_tokens: list[float] = []
    tasks = [asyncio.create_task(work) for work in (engine.step_on(), engine.look(), *(ask() for _ in range(number)))]
    while len(first_tokens) < number:  # noqa: ASYNC110  (the clock jumps)
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return first_tokens[-1], engine.looks


def _fresh(machine: Machine, *, told: bool, size: int) -> "tuple[_Engine, Admission]":
    """Return an engine that has just become ready, and admission to it."""
    upstreams = Upstreams(("http://engine:8000",))
    known = upstreams.engines[0]
    known.state = State.READY
    known.load = Load(0, 0, 0)
    known.told = EngineStatus(stage="serving", since=0, port=8000, sequences=machine.sequences if told else None)
    metrics = Metrics(CollectorRegistry())
    admission = Admission(upstreams, metrics, EngineFigures(), size=size, timeout_seconds=120, tell_seconds=600)
    return _Engine(machine, known, admission), admission


async def _say_nothing(_place: int, _seconds_left: float | None) -> None:
    pass


def simulate(
    machine: Machine, askers: Sequence[Asker], allowance: Allowance, *, warm_seconds: float, seconds: float, seed: int
) -> dict[str, float]:
    """Let all ask for so long; what comes before `warm_seconds` is not counted."""
    random.seed(seed)
    with asyncio.Runner(loop_factory=JumpingLoop) as runner, clock_of(runner.get_loop()):
        return runner.run(_simulate(machine, askers, allowance, warm_seconds, seconds))


async def _simulate(
    machine: Machine, askers: Sequence[Asker], allowance: Allowance, warm_seconds: float, seconds: float
) -> dict[str, float]:
    now = asyncio.get_running_loop().time
    engine, admission = _fresh(machine, told=True, size=256)
    limits = Limits(MemoryLedger(clock=now), Metrics(CollectorRegistry()))
    served = 0

    async def ask(asker: Asker) -> None:
        nonlocal served
        began_at = now()
        exchange = Exchange("r", "e", "chat_completions", "POST", began_at)
        exchange.client, exchange.streamed = asker.name, True
        try:
            grant = await limits.reserve(exchange, Client(asker.name, allowance), GENERATION)
            try:
                with await admission.admit(exchange, GENERATION, _say_nothing):
                    sequence = engine.ask()
                    await sequence.first.wait()
                    exchange.engine_answered_at = now()
                    if began_at >= warm_seconds:
                        asker.first_tokens.append(now() - began_at)
                    await sequence.ended.wait()
                    exchange.prompt_tokens, exchange.completion_tokens = 16, TOKENS
                    served += began_at >= warm_seconds
            finally:
                limits.settle(grant, exchange, GENERATION)
        except GatewayError:
            asker.refused += began_at >= warm_seconds

    async def ask_on(asker: Asker) -> None:
        async with asyncio.TaskGroup() as requests:
            while True:
                await asyncio.sleep(random.expovariate(asker.rate))
                requests.create_task(ask(asker))

    tasks = [asyncio.create_task(work) for work in (engine.step_on(), engine.look(), *map(ask_on, askers))]
    await asyncio.sleep(warm_seconds)
    engine.batches.clear()
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    times = [one for asker in askers if asker.counted for one in asker.first_tokens]
    return {
        "median_ms": statistics.median(times) * 1000,
        "mean_ms": statistics.fmean(times) * 1000,
        "p90_ms": statistics.quantiles(times, n=10)[8] * 1000,
        "counted": len(times),
        "answers_a_second": served / seconds,
        "batch": statistics.fmean(engine.batches),
        "refused": sum(asker.refused for asker in askers if asker.counted),
        "refused_others": sum(asker.refused for asker in askers if not asker.counted),
    }
