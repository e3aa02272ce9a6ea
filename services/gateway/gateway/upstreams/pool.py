"""Which engines there are, and which of them takes the next request."""

import itertools
import math
from collections.abc import Callable

from gateway.errors import RETRY_AFTER_SECONDS, NotReady, ShuttingDown
from gateway.upstreams.affinity import home_of
from gateway.upstreams.engine import Engine
from gateway.upstreams.launchers import Launcher, Launchers
from gateway.upstreams.names import addresses_of, base_url, host_and_port
from gateway.upstreams.status import LauncherStatus, Stage

DNS_SCHEME = "dns://"
LAUNCHER_SCHEME = "launcher://"
DEFAULT_ENGINE_PORT = 8000
# Longer is not honoured: the OpenAI SDKs ignore a Retry-After above a minute.
MOST_RETRY_AFTER_SECONDS = 60

# Fixed engines, names, launchers, engines of names by their address, engines that are leaving.
Knowledge = tuple[list[Engine], list[str], Launchers, dict[str, Engine], list[Engine]]


class Upstreams:
    """The configured engines, and those that name services and launchers add and take away."""

    def __init__(self, upstreams: tuple[str, ...]) -> None:
        self._fixed = [Engine(_label(url), url) for url in upstreams if url.startswith(("http://", "https://"))]
        self._names = [_label(url) for url in upstreams if url.startswith(DNS_SCHEME)]
        self.launchers = Launchers([_label(url) for url in upstreams if url.startswith(LAUNCHER_SCHEME)])
        self._found: dict[str, Engine] = {}
        self._leaving: list[Engine] = []
        self._turn = 0
        self._closing = False

    @property
    def has_names(self) -> bool:
        """Whether there is a name to look up again and again."""
        return bool(self._names or self.launchers.names)

    @property
    def engines(self) -> list[Engine]:
        """Every engine known now."""
        return [*self.staying, *self._leaving]

    @property
    def staying(self) -> list[Engine]:
        """The engines that are not only known until their last answer."""
        return [*self._fixed, *self._found.values(), *self.launchers.engines]

    @property
    def knowledge(self) -> Knowledge:
        """All that is known of engines and launchers, for another process's `take_over`."""
        return self._fixed, self._names, self.launchers, self._found, self._leaving

    def take_over(self, knowledge: Knowledge) -> None:
        """Know what another process does."""
        self._fixed, self._names, self.launchers, self._found, self._leaving = knowledge

    def card_bytes(self) -> dict[str, int]:
        """Return what each card holds by the launchers' last word, by the driver's name for it."""
        return {card.uuid: card.memory_used_bytes for card in self.launchers.cards}

    def known(self, model: str) -> str:
        """Return the name if an engine serves it, ready or not, else the empty one, with which any engine will do."""
        if not model:
            return ""
        for engine in self.staying:
            if engine.serves(model):
                return model
        return ""

    def pick(self, has_room: Callable[[Engine], bool], model: str = "", conversation: int = 0) -> Engine | None:
        """Return the ready engine that has room, serves a `known` model and has the least outstanding work, or None.

        A conversation goes to its home, unless that has much more to do. Engines of equal work take turns. Raises
        ShuttingDown.
        """
        if self._closing:
            raise ShuttingDown
        ready = [
            engine
            for engine in self.engines
            if engine.takes_requests and (not model or engine.serves(model)) and has_room(engine)
        ]
        if len(ready) < 2:  # noqa: PLR2004  (there is no choice)
            return ready[0] if ready else None
        if conversation:
            return home_of(conversation, ready)
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
        return self.is_ready_for("")

    def is_ready_for(self, model: str) -> bool:
        """Tell whether a request for a `known` model would be taken now."""
        engines = [engine for engine in self.engines if engine.takes_requests]
        return not self._closing and any(not model or engine.serves(model) for engine in engines)

    def waits_for(self) -> str:
        """Say in words, without addresses, what stands between the gateway and a ready engine."""
        engines = self.engines
        stage = self._first_to_serve()
        if not engines:
            if stage:
                return f"no engine yet: {stage.summary}"
            return f"the engine's {'launcher does not answer' if self.launchers.all else 'name has no address'} yet"
        states = sorted({engine.shown_state.value for engine in engines})
        return f"{len(engines)} known, {' and '.join(states)}{f': {stage.summary}' if stage else ''}"

    def _first_to_serve(self) -> Stage | None:
        """Return the stage of what should serve first: of the engine that has come furthest in its start."""
        told = [engine.told for engine in self.launchers.engines]
        stages: list[Stage] = [stage for stage in told if stage and stage.is_before_serving]
        stages += [launcher.told for launcher in self.launchers.all if launcher.told and not launcher.engines]
        return max(stages, key=lambda stage: stage.order, default=None)

    async def look_up(self, timeout_seconds: float) -> tuple[list[Engine], list[Engine]]:
        """Look the names up again and return the engines that are new and those that are gone.

        A name that cannot be looked up now keeps the engines it had. An engine that is gone gets no more
        requests; what it has may finish.
        """
        added: list[Engine] = []
        gone = await self.launchers.look_up(timeout_seconds, self._leaving)
        for name in self._names:
            host, port = host_and_port(name, DEFAULT_ENGINE_PORT)
            found = await addresses_of(host, port, ipv6=False, timeout_seconds=timeout_seconds)
            if found is None:
                continue
            addresses = {base_url(address, port) for address in found}
            known = {url for url, engine in self._found.items() if engine.family == name}
            for url in known - addresses:
                engine = self._found.pop(url)
                self._leaving.append(engine)
                gone.append(engine)
            for url in sorted(addresses - known):
                engine = Engine(self._free_label(name), url)
                self._found[url] = engine
                added.append(engine)
        return added, gone

    def hear(self, launcher: Launcher, told: LauncherStatus) -> tuple[list[Engine], list[Engine]]:
        """Take a launcher's word and return the engines that are new and those that are gone, as `look_up` does."""
        added, gone = launcher.hear(told, {engine.label for engine in self.engines})
        self._leaving += gone
        return added, gone

    def drop_finished(self) -> list[Engine]:
        """Forget the engines that are gone and have answered their last request; return them."""
        finished = [engine for engine in self._leaving if engine.outstanding == 0]
        self._leaving[:] = [engine for engine in self._leaving if engine.outstanding]
        return finished

    def _free_label(self, name: str) -> str:
        """Number an engine within its name, reusing what is free: the label set stays as small as the fleet."""
        taken = {engine.label for engine in self.engines}
        return next(label for number in itertools.count(1) if (label := f"{name}/{number}") not in taken)


def _label(url: str) -> str:
    return url.split("://", 1)[1]
