"""Admission without a gateway around it: one engine that comes and goes, and a crowd that asks for places."""

import asyncio
from dataclasses import replace

from gateway.admission import Admission, NoLimit, NumberInAll
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Generation
from gateway.upstreams import State, Upstreams
from prometheus_client import CollectorRegistry

GENERATION = Generation("/v1/chat/completions", b"x" * 39, stream=True, hide_usage=True, max_tokens=45)


class Engines(Upstreams):
    """One engine that comes and goes."""

    def __init__(self) -> None:
        super().__init__(("http://engine:8000",))

    def turn(self, state: State) -> None:
        """Put the engine into a state."""
        self.engines[0].state = state


def admission_of(
    engines: Engines,
    size: int = 100,
    timeout_seconds: float = 60,
    tell_seconds: float = 60,
    in_flight: int | None = None,
) -> Admission:
    """Return the admission to engines, with a number in flight or without limit."""
    return Admission(
        engines,
        Metrics(CollectorRegistry()),
        NumberInAll(in_flight) if in_flight else NoLimit(),
        size=size,
        timeout_seconds=timeout_seconds,
        tell_seconds=tell_seconds,
    )


def request(received_at: float, client: str = "192.0.2.1") -> Exchange:
    """Return the record of a client's request."""
    exchange = Exchange("id", "engine-id", "chat_completions", "POST", received_at)
    exchange.client = client
    return exchange


async def say_nothing(_place: int, _seconds_left: float | None) -> None:
    """Stand for a client that does not want to hear of its place."""


class Crowd:
    """Requests that ask to be admitted, each on its own task; `begun` names those that were, in order."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.begun: list[str] = []
        self.over: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.may_end = asyncio.Semaphore(0)
        self._number = 0

    async def send(self, client: str, number: int = 1, choices: int = 1) -> None:
        """Let a client ask so many times, for so many choices each, and let all of that reach admission."""
        for _ in range(number):
            self._number += 1
            exchange = request(float(self._number), client)
            generation = replace(GENERATION, choices=choices)
            self.tasks.append(asyncio.create_task(self._ask(exchange, generation)))
        await settled()

    async def end(self, number: int = 1) -> None:
        """Let so many of those that were begun come to their end."""
        for _ in range(number):
            self.may_end.release()
            await settled()

    async def finish(self) -> None:
        """Let all come to their end."""
        await self.end(len(self.tasks))
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _ask(self, exchange: Exchange, generation: Generation) -> None:
        with await self.admission.admit(exchange, generation, say_nothing):
            self.begun.append(exchange.client)
            await self.may_end.acquire()
            exchange.engine_answered_at = 1.0
            # What was expected: 10 tokens of prompt and 45 of answer.
            exchange.prompt_tokens, exchange.completion_tokens = 10, 45 * generation.choices
            self.over.append(exchange.client)


async def settled() -> None:
    """Let the tasks that can go on do so."""
    for _ in range(6):
        await asyncio.sleep(0)


def ready() -> Engines:
    """Return an engine that takes requests."""
    engines = Engines()
    engines.turn(State.READY)
    return engines
