"""The gateway's reader of event streams against the specification, for any stream in any chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.engine import DONE, event, usage_event
from tests.fuzz.effort import effort
from tests.fuzz.sse_properties import check_metering, check_reading, check_splitting, cut

LINES = [b"data: [DONE]", b"data:[DONE] ", b"data: {}", b"data:", b"data", b": data: [DONE]", b": ping", b"id: 1",
         b"retry: 1", b"event: x", b"datax: 1", b" data: 1", b'data: {"error":1}', b"data: a data: [DONE]",
         b'data: {"choices":[],"usage":{"prompt_tokens":1}}', "data: 你🔥".encode(), b"data: \xe4\xbd"]  # fmt: skip
lines = st.sampled_from(LINES)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
sizes = st.lists(st.integers(1, 40), max_size=60)


def streams_of(end: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    parts = st.lists(st.tuples(lines | st.just(b""), end).map(b"".join), max_size=12)
    return parts.map(b"".join)


even_streams = ends.flatmap(lambda end: streams_of(st.just(end)))
# Not CR beside others: whether a line feed still follows it would be open at every end of a chunk.
mixed_streams = streams_of(st.sampled_from([b"\n", b"\r\n"]))
whole_events = st.lists(
    st.text(max_size=20).map(event)
    | st.builds(usage_event, st.integers(0, 9), st.integers(0, 9))
    | st.just(b": ping\n\n"),
    max_size=8,
)


@pytest.mark.parametrize("ends_of_lines", ["even", "mixed"])
@effort(60, 5000)
@given(data=st.data(), sizes=sizes)
def test_only_whole_events_leave_and_none_is_held_back(
    ends_of_lines: str, data: st.DataObject, sizes: list[int]
) -> None:
    stream = data.draw(even_streams if ends_of_lines == "even" else mixed_streams)
    check_splitting(cut(stream, sizes))


@pytest.mark.parametrize("ends_of_lines", ["even", "mixed"])
@effort(60, 5000)
@given(data=st.data())
def test_events_are_read_as_specified(ends_of_lines: str, data: st.DataObject) -> None:
    stream = data.draw(even_streams if ends_of_lines == "even" else mixed_streams)
    check_reading(stream)


@effort(60, 5000)
@given(whole_events, sizes, st.booleans(), ends)
def test_only_usage_is_hidden(parts: list[bytes], sizes: list[int], hide: bool, end: bytes) -> None:
    stream = b"".join([*parts, DONE]).replace(b"\n", end)
    check_metering(cut(stream, sizes), hide_usage=hide)
