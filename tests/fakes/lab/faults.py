"""Faults of one answer: a name, what the engine does, and what the contract says that a client sees.

The contract is docs/behaviour.md; the times are those of `tests.fakes.lab.native.SHORT_TIMES`.
"""

import asyncio
import gzip
import random
from collections.abc import Iterable
from dataclasses import dataclass

from tests.fakes.call import Call
from tests.fakes.events import DONE as DONE_EVENT
from tests.fakes.events import EVENTS, STREAM, completion, event, usage_event
from tests.fakes.lab.sees import DONE, WHOLE, Sees, broken, refused
from tests.fakes.scripts import (
    Script,
    after_events,
    after_seconds,
    answer,
    either,
    hold,
    midway,
    refusing,
    reset,
    saying,
    sending,
    writing,
)

SLOW_SECONDS = 0.5
READ_SECONDS = 0.1
LONGEST_EVENT_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one answer; None where a mode makes no sense."""

    name: str
    engine_does: str
    script: Script
    streamed: Sees | None
    whole: Sees | None = None


def by_name(faults: Iterable[Fault]) -> dict[str, Fault]:
    """Return faults by their names."""
    return {fault.name: fault for fault in faults}


TIMED_OUT = refused(504, "upstream_timeout")
BROKEN = refused(502, "upstream_broken")
CUT_BY_TIME = broken("upstream_timeout")
INVALID = refused(502, "upstream_invalid_response")


async def _resume(call: Call) -> None:
    await after_seconds(SLOW_SECONDS, _rest)(call)


async def _rest(call: Call) -> None:
    if call.streams:
        for part in [*EVENTS[2:], DONE_EVENT]:
            call.chunk(part)
    else:
        call.chunk(completion()[30:])
    call.end()


def _whole_head(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % length


def _whole(body: bytes, length: int | None = None) -> bytes:
    return _whole_head(len(body) if length is None else length) + b"\r\n" + body


async def _half_event(call: Call) -> None:
    call.chunk(EVENTS[2][:-9])
    call.fin()


async def _endless_event(call: Call) -> None:
    call.chunk(b"data: " + b"x" * (LONGEST_EVENT_BYTES + 1))
    await hold(call)


async def _own_error(call: Call) -> None:
    call.chunk(b'data: {"error":{"message":"CUDA error","type":"X","param":null,"code":500}}\n\n')
    call.end()


async def _bad_chunk(call: Call) -> None:
    # What came before is read by then: in one piece with it this would be an answer that never began.
    await asyncio.sleep(READ_SECONDS)
    call.write(b"zz\r\nno chunk\r\n")
    await hold(call)


async def _reset_after_done(call: Call) -> None:
    call.stream_head()
    call.chunk(STREAM)
    await reset(call)


async def _error_first(call: Call) -> None:
    await saying(b'data: {"error":{"message":"too long","type":"X","param":null,"code":400}}\n\n')(call)


async def _close_after_answer(call: Call) -> None:
    await answer(call)
    call.fin()


async def _compressed(call: Call) -> None:
    kind = "text/event-stream" if call.streams else "application/json"
    body = STREAM if call.streams else completion()
    call.whole(200, gzip.compress(body), {"content-type": kind, "content-encoding": "gzip"})


async def _odd_events(call: Call) -> None:
    nothing = [event(delta=None), event(delta={}), event(delta={"content": None})]
    await saying(EVENTS[0], *nothing, *EVENTS[1:], usage_event(7, 5), usage_event(7, 5).replace(b"usage", b"other"))(
        call
    )


_LINES = STREAM.replace(b'"choices":', b'\ndata: "choices":')
_COMMENTED = b": ping\n\nid: 1\nretry: 5\n\n" + EVENTS[0] + b": pong\n\n" + b"".join(EVENTS[1:]) + DONE_EVENT


def _odd_stream(data: bytes, size: int = 0) -> Script:
    """Return a script that sends a stream in chunks of a size; 0: at random, of 1 to 40 bytes, the same each time."""
    chance = random.Random(7)  # noqa: S311  (cuts, not secrets)
    return sending(data, (lambda: size) if size else (lambda: chance.randint(1, 40)))


BEFORE_THE_ANSWER = (
    Fault("slow-first-byte", "waits 0.5 s, then answers soundly", after_seconds(SLOW_SECONDS), DONE, WHOLE),
    Fault("never-answers", "takes the request and never says a word", hold, TIMED_OUT, TIMED_OUT),
    Fault("silent-after-head", "sends status 200, then nothing", midway(hold, events=0), CUT_BY_TIME, TIMED_OUT),
    Fault("closes-unanswered", "closes instead of answering", writing(), BROKEN, BROKEN),
    Fault("resets-unanswered", "resets the connection instead of answering", reset, BROKEN, BROKEN),
    Fault("half-head", "closes in the middle of the headers", writing(b"HTTP/1.1 200 OK\r\nco"), BROKEN, BROKEN),
    Fault("garbage", "answers in what is no HTTP", writing(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), INVALID, INVALID),
    Fault(
        "huge-header",
        "sends a header of 100 KB",
        writing(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000 + b"\r\n\r\n"),
        INVALID,
        INVALID,
    ),
    Fault("error-as-first-event", "sends status 200, then an error 400 as its first event", _error_first,
          refused(400, "400")),
)  # fmt: skip

MIDWAY = (
    Fault("pause-mid-stream", "falls silent for 0.5 s in the middle, then goes on", midway(_resume), DONE, WHOLE),
    Fault("silence-mid-stream", "falls silent in the middle for good", midway(hold), CUT_BY_TIME, TIMED_OUT),
    Fault("reset-mid-stream", "resets the connection in the middle", midway(reset), broken("upstream_broken"), BROKEN),
    Fault("fin-mid-stream", "closes in the middle", midway(Call.fin), broken("upstream_broken"), BROKEN),
    Fault(
        "eof-without-done", "ends in order, but in the middle", midway(Call.end), broken("upstream_truncated"), INVALID
    ),
    Fault("half-event", "closes in the middle of an event", after_events(2, _half_event), broken("upstream_broken")),
    Fault(
        "endless-event",
        "sends an event of more than 1 MiB",
        after_events(2, _endless_event),
        broken("upstream_invalid_response"),
    ),
    Fault("bad-chunk", "breaks the framing of its body", midway(_bad_chunk), broken("upstream_broken"), BROKEN),
    Fault(
        "error-mid-stream", "sends an error event of its own", after_events(2, _own_error), broken("upstream_failed")
    ),
    Fault("reset-after-done", "resets the connection after [DONE]", _reset_after_done, DONE),
)

ODD_BUT_SOUND = (
    Fault("one-byte-flushes", "sends each byte alone", _odd_stream(STREAM, 1), DONE),
    Fault("split-anywhere", "cuts events and characters anywhere", _odd_stream(STREAM), DONE),
    Fault("crlf", "ends lines with CRLF", _odd_stream(STREAM.replace(b"\n", b"\r\n")), DONE),
    Fault("cr", "ends lines with CR", _odd_stream(STREAM.replace(b"\n", b"\r")), DONE),
    Fault("several-data-lines", "writes each event in two data lines", _odd_stream(_LINES), DONE),
    Fault("comments-and-ids", "sends comments, ids and retry fields between events", _odd_stream(_COMMENTED), DONE),
    Fault("odd-events", "sends a null delta, no content, and trailing `choices: []`", _odd_events, DONE),
    Fault("bytes-after-done", "goes on after [DONE]", _odd_stream(STREAM + b": bye\n\n", 4096), DONE),
    Fault("closes-after-answer", "closes the connection after each answer", _close_after_answer, DONE, WHOLE),
)

WRONG_ANSWERS = (
    Fault("gzip", "compresses although it was not asked to", _compressed, INVALID, INVALID),
    Fault("wrong-kind", "answers a stream with JSON, and JSON with a stream",
          either(refusing(200, completion()), sending(STREAM, lambda: 4096)), INVALID, INVALID),
    Fault("html", "answers with a web page",
          refusing(200, b"<html></html>", {"content-type": "text/html"}), INVALID, INVALID),
    Fault("empty-body", "answers with nothing", refusing(200, b""), INVALID, INVALID),
    Fault("length-too-long", "promises more bytes than it sends, and closes",
          writing(_whole(completion(), 5000)), INVALID, BROKEN),
    Fault("length-too-short", "sends more bytes than it promised",
          writing(_whole(completion(), 100)), INVALID, INVALID),
    Fault("second-answer", "sends a second answer that nobody asked for",
          either(writing(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                         b"content-length: %d\r\n\r\n" % len(STREAM) + STREAM + _whole(completion("SMUGGLED")),
                         then=hold),
                 writing(_whole(completion()) + _whole(completion("SMUGGLED")), then=hold)), DONE, WHOLE),
    Fault("two-framings", "sends a length and chunks at once",
          writing(_whole_head(5) + b"transfer-encoding: chunked\r\n\r\n"
                  b"%x\r\n%b\r\n0\r\n\r\n" % (len(completion()), completion())), INVALID, INVALID),
)  # fmt: skip


def status_fault(status: int, headers: dict[str, str] | None = None) -> Fault:
    """Return the fault of answering with a status, whatever it is."""
    body = b"" if status in {204, 304} else None
    outcome = _refusal(status)
    return Fault(f"status-{status}", f"answers {status}", refusing(status, body, headers), outcome, outcome)


def _refusal(status: int) -> Sees:
    if 400 <= status < 500:
        return refused(status, str(status))
    known = {503: refused(503, "overloaded"), 504: TIMED_OUT}
    return known.get(status, refused(502, "upstream_failed") if status >= 500 else INVALID)


STATUSES = (
    *(status_fault(status) for status in (204, 302, 400, 401, 404, 422)),
    status_fault(429, {"retry-after": "7"}),
    status_fault(500),
    status_fault(501),
    status_fault(503, {"retry-after": "9"}),
    status_fault(504),
)

FAULTS = by_name([*BEFORE_THE_ANSWER, *MIDWAY, *ODD_BUT_SOUND, *WRONG_ANSWERS, *STATUSES])
