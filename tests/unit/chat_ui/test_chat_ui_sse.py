"""The event reader, whatever the bytes are cut like."""

from collections.abc import AsyncIterator

import pytest
from chat_ui.sse import Comment, Data, read_events

STREAM = ': queue 3\n\ndata: {"text": "你好🔥\u2028\x85"}\n\ndata: a\ndata: b\nid: 7\n\ndata:[DONE]\n\n'.encode()
EVENTS = [Comment("queue 3"), Data('{"text": "你好🔥\u2028\x85"}'), Data("a\nb"), Data("[DONE]")]


async def chunks_of(stream: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(stream), size):
        yield stream[start : start + size]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
async def test_events_are_whole_however_the_bytes_are_cut(size: int, newline: bytes) -> None:
    stream = STREAM.replace(b"\n", newline)
    assert [event async for event in read_events(chunks_of(stream, size))] == EVENTS


async def test_event_without_its_blank_line_is_dropped() -> None:
    assert [event async for event in read_events(chunks_of(b"data: a\n\ndata: b\n", 4))] == [Data("a")]
