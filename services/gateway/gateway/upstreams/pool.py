"""Which engines there are, and which of them takes the next request."""

import asyncio
import math
import socket
from collections.abc import Iterator

from gateway.errors import RETRY_AFTER_SECONDS, NotReady, ShuttingDown
from gateway.upstreams.engine import Engine

DNS_SCHEME = "dns://"
DEFAULT_ENGINE_PORT = 8000
# Longer is not honoured: the OpenAI SDKs ignore a Retry-After above a minute.
MOST_RETRY_AFTER_SECONDS = 60


class Upstreams:
    """The configured engines, and those that a name service adds and takes away."""

    def __init__(self, upstreams: tuple[str, ...]) -> None:
        self._fixed = [Engine(_label(url), url) for url in upstreams if not url.startswith(DNS_SCHEME)]
        self._names = [url.removeprefix(DNS_SCHEME) for url in upstreams if url.startswith(DNS_SCHEME)]
        self._found: dict[str, Engine] = {}
        self._leaving: list[Engine] = []
        self._turn = 0
        self._closing = False

    @property
    def has_names(self) -> bool:
        """Whether there is a name to look up again and again."""
        return bool(self._names)

    @property
    def engines(self) -> list[Engine]:
        """Every engine known now."""
        return [*self._fixed, *self._found.values(), *self._leaving]

    def pick(self) -> Engine:
        """Return the ready engine with the least outstanding work; raise NotReady or ShuttingDown.

        Engines of equal work take turns.
        """
        if self._closing:
            raise ShuttingDown
        ready = [engine for engine in self.engines if engine.takes_requests]
        if not ready:
            raise self.not_ready()
        self._turn += 1
        start = self._turn % len(ready)
        return min(ready[start:] + ready[:start], key=lambda engine: engine.outstanding)

    def not_ready(self, reason: str | None = None) -> NotReady:
        """Return the refusal of a request that no engine can take now; its Retry-After is the time expected, if known.

        `reason` says what else there is to it.
        """
        left = self.seconds_left()
        retry_after = RETRY_AFTER_SECONDS if left is None else min(max(1, math.ceil(left)), MOST_RETRY_AFTER_SECONDS)
        return NotReady(
            f"No engine is ready ({self.waits_for()}{f'; {reason}' if reason else ''}). "
            f"Try again in {retry_after} seconds.",
            retry_after=retry_after,
        )

    def seconds_left(self) -> float | None:
        """Return when the first engine should be ready, judged by earlier starts; None where nothing is known."""
        left = [engine.start.seconds_left for engine in self.engines if engine.start]
        return min((seconds for seconds in left if seconds is not None), default=None)

    def close(self) -> None:
        """Take no more requests; those that are out may finish."""
        self._closing = True

    @property
    def closing(self) -> bool:
        """Whether no more requests are taken."""
        return self._closing

    @property
    def ready(self) -> bool:
        """Whether a request would be taken now."""
        return not self._closing and any(engine.takes_requests for engine in self.engines)

    def waits_for(self) -> str:
        """Say in words, without addresses, what stands between the gateway and a ready engine."""
        engines = self.engines
        if not engines:
            return "the engine's name has no address yet"
        states = sorted({engine.shown_state.value for engine in engines})
        return f"{len(engines)} known, {' and '.join(states)}"

    async def look_up(self, timeout_seconds: float) -> tuple[list[Engine], list[Engine]]:
        """Look the names up again and return the engines that are new and those that are gone.

        A name that cannot be looked up now keeps the engines it had. An engine that is gone gets no more
        requests; what it has may finish.
        """
        added: list[Engine] = []
        gone: list[Engine] = []
        for name in self._names:
            host, port = _host_and_port(name)
            try:
                async with asyncio.timeout(timeout_seconds):
                    found = await asyncio.get_running_loop().getaddrinfo(
                        host, port, family=socket.AF_INET, type=socket.SOCK_STREAM
                    )
            except (OSError, TimeoutError, UnicodeError):
                continue
            addresses = {f"http://{address[4][0]}:{port}" for address in found}
            known = {url: engine for url, engine in self._found.items() if _belongs(engine, name)}
            for url in known.keys() - addresses:
                engine = self._found.pop(url)
                self._leaving.append(engine)
                gone.append(engine)
            for url in sorted(addresses - known.keys()):
                engine = Engine(self._free_label(name), url)
                self._found[url] = engine
                added.append(engine)
        return added, gone

    def drop_finished(self) -> list[Engine]:
        """Forget the engines that are gone and have answered their last request; return them."""
        finished = [engine for engine in self._leaving if engine.outstanding == 0]
        self._leaving = [engine for engine in self._leaving if engine.outstanding]
        return finished

    def _free_label(self, name: str) -> str:
        """Number an engine within its name, reusing what is free: the label set stays as small as the fleet."""
        taken = {engine.label for engine in self.engines}
        return next(label for label in _numbered(name) if label not in taken)


def _label(url: str) -> str:
    return url.split("://", 1)[1]


def _numbered(name: str) -> Iterator[str]:
    number = 1
    while True:
        yield f"{name}/{number}"
        number += 1


def _belongs(engine: Engine, name: str) -> bool:
    return engine.label.rpartition("/")[0] == name


def _host_and_port(name: str) -> tuple[str, int]:
    host, _, port = name.partition(":")
    return host, int(port) if port else DEFAULT_ENGINE_PORT
