"""Ways to answer a request, from sound to broken: building blocks of faults, for tests and for the lab."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from tests.fakes.call import Call
from tests.fakes.events import DONE, EVENTS, completion, usage_event

Script = Callable[[Call], Awaitable[None]]
Step = Callable[[Call], Awaitable[None] | None]

# A reset may overtake bytes that the peer has not read yet; in this time they are through.
BEFORE_RESET_SECONDS = 0.05


async def count(call: Call) -> None:
    """Count as a sound engine does, with the tokens themselves."""
    call.whole(200, b'{"count":7,"max_model_len":2048,"tokens":[1,2,3,4,5,6,7],"token_strs":null}')


async def answer(call: Call) -> None:
    """Answer as a sound engine does, streamed or not."""
    if not call.streams:
        call.whole(200, completion())
        return
    call.stream_head()
    for part in EVENTS:
        call.chunk(part)
    if (call.json.get("stream_options") or {}).get("include_usage"):
        call.chunk(usage_event(7, 5))
    call.chunk(DONE)
    call.end()


async def hold(call: Call) -> None:
    """Accept and say nothing until the peer leaves."""
    await call.disconnected.wait()


async def flood(call: Call) -> None:
    """Stream without end, as fast as can be."""
    call.stream_head()
    while not call.disconnected.is_set():
        call.chunk(b"data: " + b"x" * 65_536 + b"\n\n")
        await asyncio.sleep(0)


async def reset(call: Call) -> None:
    """Close with a reset, once what was written has been read."""
    await asyncio.sleep(BEFORE_RESET_SECONDS)
    call.reset()


def once(event: asyncio.Event, then: Script) -> Script:
    """Return a script that says nothing until the event is set, and then goes on."""

    async def script(call: Call) -> None:
        await event.wait()
        await then(call)

    return script


def after_seconds(seconds: float, then: Script = answer) -> Script:
    """Return a script that says nothing for so long and then goes on."""

    async def script(call: Call) -> None:
        await asyncio.sleep(seconds)
        await then(call)

    return script


def after_events(number: int, then: Step) -> Script:
    """Return a script that streams so many events and then does something else."""

    async def script(call: Call) -> None:
        call.stream_head()
        for index in range(number):
            call.chunk(EVENTS[index % (len(EVENTS) - 1)])
        await _do(then, call)

    return script


def midway(then: Step, *, events: int = 2) -> Script:
    """Return a script that does something in the middle of its answer, be it a stream or whole."""
    in_stream = after_events(events, then)

    async def script(call: Call) -> None:
        if call.streams:
            await in_stream(call)
            return
        call.head(headers={"content-type": "application/json"})
        call.chunk(completion()[:30])
        await _do(then, call)

    return script


def either(streamed: Script, whole: Script) -> Script:
    """Return a script that answers a stream in one way and a whole request in another."""

    async def script(call: Call) -> None:
        await (streamed if call.streams else whole)(call)

    return script


def saying(*events: bytes) -> Script:
    """Return a script that streams these events and ends as it should."""

    async def script(call: Call) -> None:
        call.stream_head()
        for part in [*events, DONE]:
            call.chunk(part)
        call.end()

    return script


def sending(data: bytes, next_size: Callable[[], int], content_type: str = "text/event-stream") -> Script:
    """Return a script that sends a body in chunks of the sizes that `next_size` gives, each flushed alone."""

    async def script(call: Call) -> None:
        call.head(headers={"content-type": content_type})
        start = 0
        while start < len(data):
            size = next_size()
            call.chunk(data[start : start + size])
            start += size
        call.end()

    return script


def writing(*pieces: bytes, then: Step = Call.fin) -> Script:
    """Return a script that writes raw bytes, HTTP or not, and then closes unless told otherwise."""

    async def script(call: Call) -> None:
        for piece in pieces:
            call.write(piece)
        await _do(then, call)

    return script


def refusing(status: int, body: bytes | None = None, headers: dict[str, str] | None = None) -> Script:
    """Return a script that answers with a status, and vLLM's words for it unless told otherwise."""

    async def script(call: Call) -> None:
        call.whole(status, words(status) if body is None else body, headers)

    return script


def words(status: int) -> bytes:
    """Return an error body as vLLM writes it."""
    return json.dumps({"error": {"message": f"模型 {status}", "type": "X", "param": "m", "code": status}}).encode()


async def _do(step: Step, call: Call) -> None:
    result = step(call)
    if result is not None:
        await result
