"""Events survive any cut; usage is found and hidden, and nothing else is."""

import json

import pytest
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.sse import (
    MAX_EVENT_BYTES,
    EventSplitter,
    data_of,
    ends_stream,
    error_event,
    split_events,
)
from gateway.usage import StreamMeter, Usage, usage_in
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.engine import DONE, EVENTS, completion, event, usage_event

texts = st.text(max_size=30)
events = st.lists(
    texts.map(event)
    | st.just(b": ping\n\n")
    | st.just(b"id: 1\n\n")
    | texts.map(lambda text: b"data: " + json.dumps(text).encode() + b"\ndata: 2\n\n"),
    max_size=12,
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(events, ends, st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_any_cut_gives_back_the_same_bytes_in_whole_events(parts: list[bytes], end: bytes, sizes: list[int]) -> None:
    stream = b"".join([*parts, DONE]).replace(b"\n", end)
    boundaries = {0}
    for part in [*parts, DONE]:
        boundaries.add(max(boundaries) + len(part.replace(b"\n", end)))
    splitter, seen, start, turn = EventSplitter(), b"", 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        seen += splitter.feed(stream[start : start + size])
        assert len(seen) in boundaries, "something other than whole events came out"
        start, turn = start + size, turn + 1
    assert seen == stream
    assert ends_stream(stream)


@given(events, st.integers(0, 12), st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_only_the_usage_event_is_taken_out(parts: list[bytes], place: int, sizes: list[int]) -> None:
    at = min(place, len(parts))
    stream = b"".join([*parts[:at], usage_event(3, 4), *parts[at:], DONE])
    meter, splitter, seen, start, turn = StreamMeter(hide_usage=True), EventSplitter(), b"", 0, 0
    while start < len(stream):
        size = sizes[turn % len(sizes)]
        seen += meter.take(splitter.feed(stream[start : start + size]))
        start, turn = start + size, turn + 1
    assert seen == b"".join([*parts, DONE])
    assert meter.usage == Usage(3, 4)
    assert meter.done
    assert not meter.failed


def test_usage_is_shown_to_whoever_asked() -> None:
    meter = StreamMeter(hide_usage=False)
    assert meter.take(usage_event(3, 4)) == usage_event(3, 4)
    assert (meter.prompt_tokens, meter.completion_tokens) == (3, 4)


def test_usage_beside_text_is_never_taken_out() -> None:
    both = EVENTS[0][:-3] + b',"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    meter = StreamMeter(hide_usage=True)
    assert meter.take(both) == both
    assert meter.usage == Usage(1, 2)


@pytest.mark.parametrize("block", [b'data: {"usage":{"x":1}, broken\n\n', b'data: [{"usage":{}}]\n\n'])
def test_odd_usage_is_left_alone(block: bytes) -> None:
    assert StreamMeter(hide_usage=True).take(block) == block


def test_clients_words_are_no_figures() -> None:
    words = event('"usage":{"prompt_tokens":9} data: [DONE]\n\n data: {"error"')
    meter = StreamMeter(hide_usage=True)
    assert meter.take(words) == words
    assert (meter.usage, meter.done, meter.failed) == (None, False, False)
    assert usage_in(completion('"usage":{"prompt_tokens":9}')) == Usage(7, 5)


def test_cut_stream_counts_its_events() -> None:
    meter = StreamMeter(hide_usage=True)
    for part in EVENTS:
        meter.take(part)
    assert (meter.prompt_tokens, meter.completion_tokens) == (0, len(EVENTS))


@pytest.mark.parametrize(
    "block", [b'data: {"error":{}}\n\n', b'data:{"error":{}}\n\n', EVENTS[0] + b'data: {"error":1}\n\n']
)
def test_engines_own_error_is_noticed(block: bytes) -> None:
    meter = StreamMeter(hide_usage=True)
    meter.take(block)
    assert meter.failed


def test_endless_event_is_refused() -> None:
    splitter = EventSplitter()
    for _ in range(MAX_EVENT_BYTES // 65_536):
        splitter.feed(b"x" * 65_536)
    with pytest.raises(UpstreamInvalidResponse):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    ("stream", "ends"),
    [(DONE, True), (b"data:[DONE]\n\n", True), (b"data: [DONE]\r\n\r\n", True), (DONE + b": x\n\n", True),
     (b"data: [DONE] \n\n", True), (event("[DONE]"), False), (b'data: "data: [DONE]"\n\n', False),
     (b": [DONE]\n\n", False)],
)  # fmt: skip
def test_done_mark(stream: bytes, *, ends: bool) -> None:
    assert ends_stream(stream) is ends


def test_events_and_their_data() -> None:
    block = b": c\n\ndata: a\r\ndata:b\r\n\r\nevent: x\ndata: {}\n\n"
    assert b"".join(split_events(block)) == block
    assert [data_of(part) for part in split_events(block)] == [b"", b"a\nb", b"{}"]


def test_error_event_is_one_event() -> None:
    made = error_event(UpstreamTruncated("one\n\ntwo"))
    assert made.count(b"\n\n") == 1
    assert json.loads(data_of(made))["error"]["message"] == "one\n\ntwo"
