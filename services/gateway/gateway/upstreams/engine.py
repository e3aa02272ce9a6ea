"""One engine as the gateway sees it: its state, and the work it has from us."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from yarl import URL


class State(StrEnum):
    """What is proved of an engine; the closed set behind `gateway_engine_state{state}`."""

    UNREACHABLE = "unreachable"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    BUSY = "busy"
    STALLED = "stalled"
    DRAINING = "draining"


STATES: tuple[str, ...] = tuple(State)
_TAKES_REQUESTS = frozenset({State.READY, State.BUSY})


class Engine:
    """An engine's address, state and outstanding work; readiness alone changes the state.

    `label` comes from the configuration only, so that it is safe as a metric's label.
    """

    def __init__(self, label: str, base_url: str) -> None:
        self.label = label
        self.base_url = base_url
        self.state = State.UNREACHABLE
        self.since = time.time()
        self.waits_for: str | None = "the first look at it"
        self.models: list[dict[str, Any]] = []
        self.outstanding = 0
        self.chunks_received = 0
        self.unsettled_aborts: list[float] = []
        self.warmup_ttft_seconds: float | None = None
        # Set when something happened that readiness should look at before its next turn.
        self.attention = asyncio.Event()
        self._urls: dict[str, URL] = {}

    @property
    def takes_requests(self) -> bool:
        """Whether it has proved itself and is not known to stand still."""
        return self.state in _TAKES_REQUESTS

    def url(self, path: str) -> URL:
        """Return the address of one of the few paths the gateway uses."""
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self.base_url + path)
        return url

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Count one request as this engine's outstanding work until the block ends."""
        self.outstanding += 1
        try:
            yield
        finally:
            self.outstanding -= 1

    def note_abort(self) -> None:
        """Remember that work of ours was ended early, for readiness to confirm by the engine's counters."""
        self.unsettled_aborts.append(time.monotonic())
        self.attention.set()

    def note_connect_fault(self) -> None:
        """Ask readiness to look at once: a connection was just refused."""
        self.attention.set()
