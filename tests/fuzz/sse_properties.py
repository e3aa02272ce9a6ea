"""What must hold for any stream in any chunks: tried by hypothesis, by atheris, and with the kept corpus."""

from collections.abc import Iterable

import orjson
from gateway.sse import EventSplitter, data_of, ends_stream, split_events
from gateway.usage import StreamMeter

from tests.fuzz.sse_reference import Event, read


def check_splitting(chunks: list[bytes]) -> None:
    """Only whole events come out, each as soon as it is complete, and every byte as it was."""
    splitter, seen, fed = EventSplitter(), b"", b""
    for chunk in chunks:
        fed += chunk
        seen += splitter.feed(chunk)
        assert fed.startswith(seen)
        assert read(seen)[1].strip(b"\r\n") == b"", "an event left unfinished"
        held = fed[len(seen) :]
        # CR after LF is the beginning of one more CR LF.
        assert read(held.removesuffix(b"\r") if held.endswith(b"\n\r") else held)[0] == [], (
            "a finished event is held back"
        )


def check_reading(stream: bytes) -> None:
    """Single events, their data and the end mark are the reference's."""
    expected, rest = read(stream)
    events = stream.removesuffix(rest)
    assert b"".join(split_events(events)) == events
    assert [data for event in split_events(events) if (data := data_of(event))] == [e.data for e in expected if e.data]
    assert ends_stream(events) is any(event.ends_stream for event in expected)


def check_metering(chunks: list[bytes], *, hide_usage: bool) -> None:
    """Nothing but usage events is taken out, and only where they are to be hidden."""
    splitter, meter, shown = EventSplitter(), StreamMeter(hide_usage=hide_usage), b""
    stream = b"".join(chunks)
    for chunk in chunks:
        shown += meter.take(splitter.feed(chunk))
    events, _ = read(stream)
    assert shown == b"".join(event.raw for event in events if not (hide_usage and is_usage(event)))
    assert meter.done is any(event.ends_stream for event in events)
    assert meter.prompt_tokens >= 0
    assert meter.completion_tokens >= 0


def is_usage(event: Event) -> bool:
    """Whether an event is the one that `include_usage` asks for: figures, and no choice."""
    try:
        data = orjson.loads(event.data or b"")
    except orjson.JSONDecodeError:
        return False
    return isinstance(data, dict) and data.get("choices") == [] and isinstance(data.get("usage"), dict)


def check_hiding(chunks: list[bytes]) -> None:
    """Of any stream at all: what is taken out holds no choice, the rest stays in its order, and the end is noticed."""
    splitter, meter, shown = EventSplitter(), StreamMeter(hide_usage=True), b""
    for chunk in chunks:
        shown += meter.take(splitter.feed(chunk))
    events, _ = read(b"".join(chunks))
    left = iter(read(shown)[0])
    following = next(left, None)
    for event in events:
        if following is not None and event.raw.strip(b"\r\n") == following.raw.strip(b"\r\n"):
            following = next(left, None)
        else:
            assert orjson.loads(event.data or b"")["choices"] == []
    assert following is None
    assert meter.done is any(event.ends_stream for event in events)


def cut(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Return a stream in chunks of these sizes, the last one taking the rest."""
    chunks = []
    for size in sizes:
        chunks.append(stream[:size])
        stream = stream[size:]
    return [chunk for chunk in [*chunks, stream] if chunk]
