"""Which answers each client tries again, how long it waits, and how many requests that makes at the engine."""

import asyncio
import json
import time
from dataclasses import dataclass

import pytest

from tests.clients.driver import Ask, Clients, url_of
from tests.fakes.engine import TEXT, Call, FakeEngine, answer
from tests.fakes.gateway import RunningGateway

pytestmark = pytest.mark.process

RETRY_AFTER_SECONDS = 1
ALWAYS = 99
TEXT_CAME = "".join(TEXT)


@dataclass(frozen=True)
class Case:
    """The engine answers with `status` so many `times`; the client may retry so often; this comes of it."""

    status: int
    times: int
    retries: int
    calls: int
    told: str | int
    stream: bool = False

    @property
    def waits(self) -> bool:
        """Whether the engine says how long to wait."""
        return self.status in (429, 503)


CASES = [
    Case(429, times=1, retries=2, calls=2, told=TEXT_CAME),
    Case(503, times=1, retries=2, calls=2, told=TEXT_CAME),
    Case(429, times=1, retries=2, calls=2, told=TEXT_CAME, stream=True),
    Case(503, times=1, retries=2, calls=2, told=TEXT_CAME, stream=True),
    Case(429, times=ALWAYS, retries=0, calls=1, told=429),
    Case(503, times=ALWAYS, retries=0, calls=1, told=503),
    Case(400, times=ALWAYS, retries=2, calls=1, told=400),
    Case(404, times=ALWAYS, retries=2, calls=1, told=404),
    Case(413, times=ALWAYS, retries=2, calls=1, told=413),
    # What the engine fails at is generated again: whoever does not want that sets the retries to 0.
    Case(500, times=ALWAYS, retries=1, calls=2, told=502),
    # What took too long would take as long again, and the gateway says so (`x-should-retry`).
    Case(504, times=ALWAYS, retries=2, calls=1, told=504),
    Case(504, times=1, retries=2, calls=1, told=504, stream=True),
]


async def test_retries_are_as_many_and_as_late_as_the_gateway_says(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway
) -> None:
    called_at: dict[tuple[int, str], list[float]] = {}

    async def script(call: Call) -> None:
        number, client = int(call.json["user"]), call.json["messages"][0]["content"]
        times = called_at.setdefault((number, client), [])
        times.append(time.monotonic())
        case = CASES[number]
        if len(times) > case.times:
            await answer(call)
            return
        error = {"message": "words", "type": "T", "param": None, "code": case.status}
        headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if case.waits else {}
        call.whole(case.status, json.dumps({"error": error}).encode(), headers)

    async def ask(number: int, case: Case) -> dict[str, str | int | None]:
        told = await clients.ask(
            url_of(gateway), Ask(stream=case.stream, retries=case.retries, extra={"user": str(number)})
        )
        return {name: one.failure.status if one.failure else one.text for name, one in told.items()}

    engine.script = script
    told = await asyncio.gather(*(ask(number, case) for number, case in enumerate(CASES)))
    assert told == [clients.all(case.told) for case in CASES]
    calls = {key: len(times) for key, times in called_at.items()}
    assert calls == {(number, client.name): case.calls for number, case in enumerate(CASES) for client in clients}
    # The clients' own pause would be 0.5 s at most.
    for (number, client), times in called_at.items():
        if CASES[number].waits and len(times) > 1:
            assert times[1] - times[0] >= RETRY_AFTER_SECONDS, (client, CASES[number])
