"""Reading an event stream as the HTML standard's chapter on server-sent events says, one line after the other.

Slow and plain on purpose: it is what the gateway's reader is compared with. A byte order mark is not looked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """A block up to its blank line: all its bytes, and its data, None where it has no data field."""

    raw: bytes
    data: bytes | None

    @property
    def ends_stream(self) -> bool:
        """Whether it is the `[DONE]` mark."""
        return self.data is not None and self.data.rstrip(b" ") == b"[DONE]"


def read(stream: bytes) -> tuple[list[Event], bytes]:
    """Return the finished events of a whole stream, and the bytes after the last: an unfinished one, or blank lines.

    A blank line that ends no field or comment is none's end; it counts to what follows it.
    """
    events: list[Event] = []
    fields: list[tuple[bytes, bytes]] = []
    start = 0
    for line, end in _lines(stream):
        if line:
            name, _, value = line.partition(b":")
            fields.append((name, value.removeprefix(b" ")))
        elif fields:
            data = [value for name, value in fields if name == b"data"]
            events.append(Event(stream[start:end], b"\n".join(data) if data else None))
            fields, start = [], end
    return events, stream[start:]


def _lines(stream: bytes) -> Iterator[tuple[bytes, int]]:
    """Give each finished line without its end, and the offset behind it."""
    start = at = 0
    while at < len(stream):
        if stream[at] not in b"\r\n":
            at += 1
            continue
        length = 2 if stream[at : at + 2] == b"\r\n" else 1
        yield stream[start:at], at + length
        start = at = at + length
