"""A reader of server-sent events: bytes in, comments and data out.

httpx's `aiter_lines` is not used: it also breaks lines at U+2028 and the like, which JSON may hold as they are.
"""

import codecs
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that starts with a colon: a keep-alive, or the gateway's word on the queue."""

    text: str


@dataclass(frozen=True, slots=True)
class Data:
    """The data of one event; lines joined by newlines."""

    text: str


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[Comment | Data]:
    """Yield comments and events in order, however the chunks are cut; an event without its blank line is dropped."""
    data: list[str] = []
    async for line in _read_lines(chunks):
        if not line:
            if data:
                yield Data("\n".join(data))
            data = []
        elif line.startswith(":"):
            yield Comment(line[1:].strip())
        else:
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))


async def _read_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    rest = ""
    async for chunk in chunks:
        rest += decode(chunk)
        # A carriage return at the very end may be the first half of CRLF: it waits for the next chunk.
        held = "\r" if rest.endswith("\r") else ""
        text = rest.removesuffix(held) if held else rest
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        rest += held
        for line in lines:
            yield line
    if rest.endswith("\r"):
        yield rest[:-1]
