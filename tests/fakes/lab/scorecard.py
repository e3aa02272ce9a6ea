"""The scorecard: every fault once against a running gateway, and what came of it against the contract.

After each the gateway must be quiescent: nothing in flight at the gateway or the engine, and a sound request succeeds.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.events import MODEL
from tests.fakes.lab.client import Answer, ask, chat
from tests.fakes.lab.departures import DEPARTURES, Departure
from tests.fakes.lab.faults import FAULTS, Fault
from tests.fakes.lab.modes import MODES, SOUND, Mode
from tests.fakes.lab.sees import DONE, WHOLE, Sees, blemishes, seen

# No answer may take longer: the longest timeout of the lab, and what a busy machine adds.
LONGEST_SECONDS = 6.0
SETTLE_SECONDS = 5.0
STATE_SECONDS = 10.0
START_SECONDS = 60.0
LOOK_SECONDS = 0.05


@dataclass
class Row:
    """One line of the scorecard; it is fine if there are no complaints."""

    fault: str
    what: str
    mode: str
    saw: str = ""
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lab:
    """The two addresses of a lab: the gateway's, and the engine's switchboard."""

    gateway: str
    switchboard: str

    async def control(self) -> Any:
        """Return what the fault engine reports."""
        return (await ask(self.switchboard, "/control")).json

    async def switch(self, mode: str) -> Any:
        """Put the engine into a mode."""
        return (await ask(self.switchboard, "/control", {"mode": mode})).json

    async def engine(self) -> Any:
        """Return what the gateway says of its first engine."""
        return (await ask(self.gateway, "/readyz?verbose")).json["engines"][0]

    async def in_flight(self) -> float:
        """Return the gateway's own count of open requests."""
        page = (await ask(self.gateway, "/metrics")).body.decode()
        line = next(line for line in page.splitlines() if line.startswith("gateway_requests_in_flight "))
        return float(line.rpartition(" ")[2])

    async def becomes_ready(self, timeout_seconds: float = STATE_SECONDS) -> bool:
        """Wait for a gateway that takes requests."""

        async def ready() -> bool:
            try:
                return (await ask(self.gateway, "/readyz")).status == 200
            except OSError:
                return False

        return await until(ready, timeout_seconds)


async def score(lab: Lab) -> AsyncIterator[Row]:
    """Go through every fault and yield its row as it is done."""
    await lab.switch(SOUND)
    if not await lab.becomes_ready(START_SECONDS):
        yield Row(SOUND, "", "", complaints=["the gateway did not become ready"])
        return
    for fault in FAULTS.values():
        for row in await score_fault(lab, fault):
            yield row
    for departure in DEPARTURES:
        yield await _score_departure(lab, departure)
    for mode in MODES.values():
        if mode.name != SOUND:
            yield await _score_mode(lab, mode)
    yield await _score_restart(lab)


async def score_fault(lab: Lab, fault: Fault) -> list[Row]:
    """Ask for a fault streamed and whole at the same time; what is left of it is the last row's complaint."""
    asked = (await lab.control())["asked"].get(fault.name, 0)
    modes = [(True, fault.streamed), (False, fault.whole)]
    rows = await asyncio.gather(
        *(score_answer(lab, fault, expected, stream=stream) for stream, expected in modes if expected is not None)
    )
    times = (await lab.control())["asked"].get(fault.name, 0) - asked
    if times != len(rows):
        rows[-1].complaints.append(f"the engine was asked {times} times for {len(rows)}")
    rows[-1].complaints += await not_quiescent(lab)
    return rows


async def score_answer(lab: Lab, fault: Fault, expected: Sees, *, stream: bool) -> Row:
    """Ask for a fault in one mode."""
    row = Row(fault.name, f"the engine {fault.engine_does}", "stream" if stream else "whole")
    answer = await (await chat(lab.gateway, fault.name, stream=stream)).answer()
    row.seconds = answer.seconds
    _judge(row, answer, expected)
    return row


async def _score_departure(lab: Lab, departure: Departure) -> Row:
    row = Row(departure.name, f"the client {departure.client_does}", "stream" if departure.stream else "whole")
    conversation = await departure.begin(lab.gateway)
    await until(lambda: running(lab), SETTLE_SECONDS)
    left_at = time.time()
    departure.go(conversation)

    async def noticed() -> bool:
        return (await lab.control())["calls"][-1]["disconnected_at"] is not None

    if await until(noticed, SETTLE_SECONDS):
        row.seconds = max(0.0, (await lab.control())["calls"][-1]["disconnected_at"] - left_at)
        row.saw = "the engine's work is ended"
        if row.seconds > departure.limit_seconds:
            row.complaints.append(f"took longer than {departure.limit_seconds:g} s")
    else:
        row.saw = "the engine works on"
        row.complaints.append("the engine was not told")
    conversation.leave()
    row.complaints += await not_quiescent(lab)
    return row


async def _score_mode(lab: Lab, mode: Mode) -> Row:
    row = Row(mode.name, f"the engine {mode.engine_does}", "engine")
    caught = await chat(lab.gateway, "silence-mid-stream", stream=True) if mode.caught else None
    if caught:
        await until(lambda: running(lab), SETTLE_SECONDS)
    answering = asyncio.create_task(caught.answer()) if caught else None
    started = time.monotonic()
    since = (await lab.switch(mode.name))["since"]
    if mode.proved_again:
        await _see_proof(lab, row, since)
    await _see_state(lab, row, mode)
    row.seconds = time.monotonic() - started
    await _see_rotation(lab, row, mode.keeps_traffic_seconds)
    whole, streamed = await asyncio.gather(*(_ask_soundly(lab, stream=stream) for stream in (False, True)))
    _judge(row, whole, mode.whole)
    if mode.streamed != DONE:
        _judge(row, streamed, mode.streamed)
    if answering and mode.caught:
        _judge(row, await answering, mode.caught, prefix="caught: ")
    await lab.switch(SOUND)
    if not await lab.becomes_ready():
        row.complaints.append("did not come back")
    row.complaints += await not_quiescent(lab)
    return row


async def _score_restart(lab: Lab) -> Row:
    """Restart the engine under open and arriving requests: each is answered or refused, none is lost."""
    row = Row(
        "restart-under-load", "the engine is killed, and back at once, under 10 open and 20 new requests", "engine"
    )
    started = time.monotonic()
    held = [await chat(lab.gateway, "silence-mid-stream", stream=True) for _ in range(10)]
    answering = [asyncio.create_task(conversation.answer()) for conversation in held]

    async def all_open() -> bool:
        return bool((await lab.control())["running"] == len(held))

    await until(all_open, SETTLE_SECONDS)
    await lab.switch("killed")
    new = [asyncio.create_task(_ask_soundly(lab, stream=bool(number % 2))) for number in range(20)]
    await lab.switch(SOUND)
    answers = await asyncio.gather(*answering, *new)
    outcomes = Counter(str(seen(answer)) for answer in answers)
    row.saw = ", ".join(f"{number} x {outcome}" for outcome, number in outcomes.most_common())
    row.complaints += sorted({blemish for answer in answers for blemish in blemishes(answer)})
    await lab.becomes_ready()
    row.seconds = time.monotonic() - started
    row.complaints += await not_quiescent(lab)
    return row


async def _see_proof(lab: Lab, row: Row, since: float) -> None:
    async def proved() -> bool:
        at = (await lab.control())["last_trial_at"]
        return at is not None and at >= since

    if not await until(proved, STATE_SECONDS):
        row.complaints.append("was not proved again")


async def _see_state(lab: Lab, row: Row, mode: Mode) -> None:
    async def there() -> bool:
        engine = await lab.engine()
        return engine["state"] in mode.states and mode.waits_for in (engine["waits_for"] or "")

    reached = await until(there, STATE_SECONDS)
    engine = await lab.engine()
    row.saw = engine["state"]
    if not reached:
        row.complaints.append(f"is {engine['state']}, waiting for {engine['waits_for']}, not {mode.states[0]}")


async def _see_rotation(lab: Lab, row: Row, seconds: float) -> None:
    async def out() -> bool:
        return (await lab.engine())["state"] not in {"ready", "busy"}

    if seconds and await until(out, seconds):
        row.complaints.append("was taken out of rotation")


def _judge(row: Row, answer: Answer, expected: Sees, *, prefix: str = "") -> None:
    saw = seen(answer)
    row.saw += ("; " if row.saw else "") + prefix + str(saw)
    if saw != expected:
        row.complaints.append(f"{prefix}should be: {expected}")
    row.complaints += [prefix + blemish for blemish in blemishes(answer)]
    if answer.seconds > LONGEST_SECONDS:
        row.complaints.append(f"{prefix}took {answer.seconds:.1f} s")


async def _ask_soundly(lab: Lab, *, stream: bool) -> Answer:
    return await (await chat(lab.gateway, MODEL, stream=stream)).answer()


async def running(lab: Lab) -> bool:
    """Return whether the engine has work."""
    return bool((await lab.control())["running"])


async def not_quiescent(lab: Lab) -> list[str]:
    """Return what is left of a fault, and what is wrong with the next sound request."""

    async def quiet() -> bool:
        return await lab.in_flight() == 0 and not await running(lab)

    found = []
    if not await until(quiet, SETTLE_SECONDS):
        found.append(f"{await lab.in_flight():.0f} requests were left in flight")
    after = await _ask_soundly(lab, stream=False)
    if seen(after) != WHOLE or blemishes(after):
        found.append(f"the next sound request: {seen(after)} {' '.join(blemishes(after))}".rstrip())
    return found


async def until(condition: Callable[[], Awaitable[bool]], timeout_seconds: float) -> bool:
    """Wait until something that sends no event becomes true; return whether it did."""
    ends_at = time.monotonic() + timeout_seconds
    while not await condition():
        if time.monotonic() > ends_at:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True
