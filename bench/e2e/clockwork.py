"""What the processes on a way cost between two moments, in cores."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.engine.engines import Clocks, Engine
from bench.engine.result import rounded


class Clockwork:
    """Reads the clocks of groups of processes; of engines it tells the front ends from what computes."""

    def __init__(self, parts: Mapping[str, Sequence[Engine]]) -> None:
        self._parts = parts
        self._opened_at = 0.0
        self._before: dict[str, list[Clocks]] = {}

    def open(self) -> None:
        """Note what they have cost so far."""
        self._opened_at, self._before = time.monotonic(), self._read()

    def close(self) -> dict[str, Any]:
        """Return cores, and the share of its core that each group's busiest thread had."""
        closed_at, after = time.monotonic(), self._read()
        seconds = closed_at - self._opened_at
        cores, busiest = {}, {}
        for name, clocks in after.items():
            pairs = list(zip(self._before[name], clocks, strict=True))
            if core := sum(new.core - old.core for old, new in pairs):
                cores["engines"] = rounded(core / 1e9 / seconds)
            front = "front_ends" if name == "engines" else name
            cores[front] = rounded(sum(new.front - old.front for old, new in pairs) / 1e9 / seconds)
            shares = [
                (spent - old.threads.get(thread, 0)) / 1e9 / seconds
                for old, new in pairs
                for thread, spent in new.threads.items()
                if thread[0] == "front"
            ]
            busiest[front] = rounded(max(shares, default=0.0))
        return {"cores": cores, "busiest_thread": busiest}

    def _read(self) -> dict[str, list[Clocks]]:
        return {name: [server.clocks() for server in servers] for name, servers in self._parts.items()}
