"""Tokens from the engine's own figures, counted once, found without parsing what passes by."""

import re
from dataclasses import dataclass

import orjson

from gateway.sse import data_of, ends_stream, split_events

# A quote inside JSON text is always escaped, so these bytes can only be a key, never a client's words.
_USAGE_KEY = re.compile(rb'"usage"\s*:\s*\{')
_PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,12})')
_COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,12})')
_ERROR_EVENT = re.compile(rb'(?:^|[\r\n])data: ?\{"error"')


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one request cost."""

    prompt_tokens: int
    completion_tokens: int


def usage_in(answer: bytes) -> Usage | None:
    """Return the last usage figures in an answer or an event, or None."""
    found = None
    for found in _USAGE_KEY.finditer(answer):  # noqa: B007  (the last one counts)
        pass
    if found is None:
        return None
    prompt = _PROMPT_TOKENS.search(answer, found.end())
    completion = _COMPLETION_TOKENS.search(answer, found.end())
    return Usage(int(prompt[1]) if prompt else 0, int(completion[1]) if completion else 0)


class StreamMeter:
    """Watches one stream's whole events: usage, the `[DONE]` mark, an error of the engine's own.

    With `hide_usage` the usage event, which the gateway asked for and the client did not, is taken out;
    every other byte stays. Until usage figures come, events are counted: about one token each.
    """

    __slots__ = ("_events", "_hide_usage", "done", "failed", "usage")

    def __init__(self, *, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._events = 0
        self.usage: Usage | None = None
        self.done = False
        self.failed = False

    @property
    def completion_tokens(self) -> int:
        """The engine's figure; for a stream cut before it came, the number of events."""
        return self.usage.completion_tokens if self.usage else self._events

    @property
    def prompt_tokens(self) -> int:
        """The engine's figure, 0 for a stream that was cut before it came."""
        return self.usage.prompt_tokens if self.usage else 0

    @staticmethod
    def is_plain(events: bytes) -> bool:
        """Tell whether a block of whole events is text for the client and nothing else."""
        return not (b"[DONE]" in events or b'{"error"' in events or b'"usage"' in events)

    def count(self, events: bytes) -> None:
        """Count the events of a plain block."""
        self._events += events.count(b"\n\n")

    def take(self, events: bytes) -> bytes:
        """Note what a block of whole events says and return what the client is to see."""
        self.count(events)
        if self.is_plain(events):
            return events
        if b"[DONE]" in events:
            self.done = self.done or ends_stream(events)
        if b'{"error"' in events and _ERROR_EVENT.search(events):
            self.failed = True
        if b'"usage"' not in events or not (usage := usage_in(events)):
            return events
        self.usage = usage
        if not self._hide_usage:
            return events
        return b"".join(event for event in split_events(events) if not _is_usage_event(event))


def _is_usage_event(event: bytes) -> bool:
    """Tell whether an event holds usage and nothing else."""
    if not _USAGE_KEY.search(event):
        return False
    try:
        data = orjson.loads(data_of(event))
    except orjson.JSONDecodeError:
        return False
    return isinstance(data, dict) and data.get("choices") == []
