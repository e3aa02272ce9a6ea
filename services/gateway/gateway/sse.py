"""Server-sent events as bytes: cut at event ends, never decoded.

Only whole events leave `EventSplitter`, so a heartbeat or an error event can follow anything it has
returned, and an event that the engine did not finish is never shown.
"""

import re

import orjson

from gateway.errors import GatewayError, UpstreamInvalidResponse

# Two line feeds, so that readers that split on blank lines see it as a block of its own.
HEARTBEAT = b": waiting\n\n"
# The largest events seen are a few KiB (logprobs of 20 tokens); beyond this it is no event stream.
MAX_EVENT_BYTES = 1_048_576

# As engines write it; other spellings are found too.
_DONE = b"data: [DONE]\n\n"
_DONE_AFTER_OTHERS = b"\n\n" + _DONE

# Line ends may be LF, CR LF or CR, and mixed.
_BLANK_LINE = re.compile(rb"\n\r?\n|\r\r")
_LONGEST_BLANK_LINE = 3


class EventSplitter:
    """Collects chunks that are cut anywhere and gives back whole events, byte for byte."""

    __slots__ = ("_partial",)

    def __init__(self) -> None:
        self._partial = bytearray()

    def is_whole(self, chunk: bytes) -> bool:
        """Tell whether a chunk is nothing but whole events, nothing being left of those before."""
        return not self._partial and chunk.endswith(b"\n\n")

    def feed(self, chunk: bytes) -> bytes:
        """Return all up to the last event end; raise UpstreamInvalidResponse if there is none for 1 MiB."""
        if self.is_whole(chunk):
            return chunk
        partial = self._partial
        searched = max(0, len(partial) - _LONGEST_BLANK_LINE + 1)
        partial += chunk
        end = _last_event_end(partial, searched)
        if end < 0:
            if len(partial) > MAX_EVENT_BYTES:
                raise UpstreamInvalidResponse("The engine sent an endless event. Try again.")
            return b""
        events = bytes(partial[:end])
        del partial[:end]
        return events


def _last_event_end(data: bytearray, start: int) -> int:
    """Return the offset behind the last blank line that ends after `start`, or -1."""
    ends = [at + len(blank) for blank in (b"\n\n", b"\n\r\n", b"\r\r") if (at := data.rfind(blank, start)) >= 0]
    return max(ends, default=-1)


def split_events(events: bytes) -> list[bytes]:
    """Return the single events of a block of whole ones, each with its blank line."""
    found, start = [], 0
    for blank in _BLANK_LINE.finditer(events):
        found.append(events[start : blank.end()])
        start = blank.end()
    if start < len(events):
        found.append(events[start:])
    return found


def data_of(event: bytes) -> bytes:
    """Return the event's data lines joined as the specification says; empty for a comment."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line == b"data" or line.startswith(b"data:")]
    return b"\n".join(lines)


def ends_stream(events: bytes) -> bool:
    """Tell whether a block of whole events holds the `[DONE]` mark."""
    if events == _DONE or events.endswith(_DONE_AFTER_OTHERS):
        return True
    return b"[DONE]" in events and any(data_of(event).rstrip(b" ") == b"[DONE]" for event in split_events(events))


def waiting_comment(place: int, seconds_left: float | None) -> bytes:
    """Return the comment that tells one who waits its place, from 1, and the seconds that should be left."""
    left = "" if seconds_left is None else f" seconds_left={seconds_left:.0f}"
    return f": waiting place={place}{left}\n\n".encode()


def error_event(error: GatewayError) -> bytes:
    """Return the one event that ends a broken stream; clients raise it as an error."""
    # An engine may write its body in several lines; an event's data would end with the first.
    return b"data: " + orjson.dumps(orjson.loads(error.encode())) + b"\n\n"
