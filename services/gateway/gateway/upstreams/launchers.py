"""Launchers: each says at `/status` which engines it runs on its card, and how far they have come."""

import itertools
import time

from gateway.upstreams.engine import Engine, State
from gateway.upstreams.names import addresses_of, base_url, host_and_port
from gateway.upstreams.status import CardStatus, LauncherStatus

DEFAULT_STATUS_PORT = 8090
# What a launcher said last is not believed for longer once it is silent: by then another may have taken its place.
BELIEVED_SECONDS = 10.0


class Launcher:
    """The launcher at one address: what it said last, and its engines, which stay known while it is silent.

    `state` is unreachable or loading and says whether it answers; `fault` why it does not, None if it does.
    """

    def __init__(self, label: str, address: str, port: int) -> None:
        self.label = label
        self.address = address
        self.told: LauncherStatus | None = None
        self.engines: dict[int, Engine] = {}
        self.state = State.UNREACHABLE
        self.since = time.time()
        self.fault: str | None = None
        self._answered_at = 0.0
        self.base_url = base_url(address, port)

    def hear(self, told: LauncherStatus, taken: set[str]) -> tuple[list[Engine], list[Engine]]:
        """Take its word; return the engines that are new and those that are no longer listed.

        New ones get the first numbers that are free among the labels that are `taken`.
        """
        self._enter(State.LOADING, None)
        self.told = told
        self._answered_at = time.monotonic()
        listed = {engine.port for engine in told.engines}
        gone = [self.engines.pop(port) for port in self.engines.keys() - listed]
        added = []
        free = (label for number in itertools.count(1) if (label := f"{self.label}/{number}") not in taken)
        for one in told.engines:
            if one.port not in self.engines:
                self.engines[one.port] = Engine(next(free), base_url(self.address, one.port))
                added.append(self.engines[one.port])
            self.engines[one.port].hear(one)
        return added, gone

    def lose(self, state: State, fault: str) -> bool:
        """Note that it does not answer, or not as a launcher does; return whether that is news."""
        is_news = self.fault is None or self.state is not state
        self._enter(state, fault)
        if self.told and time.monotonic() - self._answered_at > BELIEVED_SECONDS:
            self.told = None
            for engine in self.engines.values():
                engine.hear(None)
        return is_news

    def _enter(self, state: State, fault: str | None) -> None:
        self.fault = fault
        if self.state is not state:
            self.state = state
            self.since = time.time()


class Launchers:
    """The launchers behind the configured names, one for each address of a name."""

    def __init__(self, names: list[str]) -> None:
        self._known: dict[str, dict[str, Launcher]] = {name: {} for name in names}

    @property
    def all(self) -> list[Launcher]:
        """Every launcher known now."""
        return [launcher for known in self._known.values() for launcher in known.values()]

    @property
    def names(self) -> list[str]:
        """The configured names."""
        return list(self._known)

    @property
    def names_without_address(self) -> list[str]:
        """The names of which no launcher is known."""
        return [name for name, known in self._known.items() if not known]

    @property
    def engines(self) -> list[Engine]:
        """The engines of all of them."""
        return [
            engine
            for known in self._known.values()
            for launcher in known.values()
            for engine in launcher.engines.values()
        ]

    @property
    def cards(self) -> list[CardStatus]:
        """Their cards by what they said last, each once: several launchers may run on one."""
        told = [launcher.told for launcher in self.all if launcher.told]
        return list({card.uuid: card for one in told for card in one.cards}.values())

    async def look_up(self, timeout_seconds: float, leaving: list[Engine]) -> list[Engine]:
        """Look the names up again; return the engines of launchers whose address is gone, and add them to `leaving`.

        A name that cannot be looked up now keeps the launchers it had. New ones get the first numbers that are free,
        those of engines that are leaving counted as taken.
        """
        all_gone: list[Engine] = []
        for name, known in self._known.items():
            host, port = host_and_port(name, DEFAULT_STATUS_PORT)
            addresses = await addresses_of(host, port, ipv6=True, timeout_seconds=timeout_seconds)
            if addresses is None:
                continue
            gone = [engine for address in known.keys() - addresses for engine in known.pop(address).engines.values()]
            leaving += gone
            all_gone += gone
            taken = {launcher.label for launcher in known.values()}
            taken |= {engine.label.rpartition("/")[0] for engine in leaving}
            free = (label for number in itertools.count(1) if (label := f"{name}/{number}") not in taken)
            for address in sorted(addresses - known.keys()):
                known[address] = Launcher(next(free), address, port)
        return all_gone
