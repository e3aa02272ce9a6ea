"""Following what changes by itself: the addresses of names, and the engines that launchers run."""

import asyncio
import logging
from collections.abc import Callable

from gateway.errors import GatewayError, UpstreamUnavailable
from gateway.upstreams import STATUS_BYTES, BadStatus, Engine, EngineClient, Launcher, State, Upstreams, read_status

_log = logging.getLogger("gateway.readiness")
# Docker's name service knows a new container within a second; the gateway is to have found it within five.
LOOK_UP_SECONDS = 2.0
# What a name service may take for one look.
NAMES_SECONDS = 5.0
# A launcher says `stopping` a second before it stops an engine.
ASK_SECONDS = 1.0
ANSWER_SECONDS = 2.0
GONE_FROM_NAMES = "its address is gone from the name service"
GONE_FROM_LAUNCHER = "its launcher lists it no more"


class Following:
    """Looks names up every `LOOK_UP_SECONDS` and asks each launcher every `ask_seconds`.

    `watch` is called with each engine that becomes known, `leave` with each that is gone and why, `forget` when
    some that were gone have answered their last request.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        client: EngineClient,
        ask_seconds: float,
        *,
        watch: Callable[[Engine], None],
        leave: Callable[[Engine, str], None],
        forget: Callable[[], None],
    ) -> None:
        self._upstreams = upstreams
        self._client = client
        self._ask_seconds = ask_seconds
        self._watch = watch
        self._leave = leave
        self._forget = forget
        self._names: asyncio.Task[None] | None = None
        self._asking: dict[Launcher, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to follow, if there is anything to follow."""
        if self._upstreams.has_names:
            self._names = asyncio.create_task(self._follow_names())

    async def stop(self) -> None:
        """End all following."""
        tasks = [*([self._names] if self._names else []), *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def look_up(self) -> None:
        """Look the names up once, and begin or end what follows from it."""
        self._apply(*await self._upstreams.look_up(NAMES_SECONDS), GONE_FROM_NAMES)
        if self._upstreams.drop_finished():
            self._forget()
        known = self._upstreams.launchers.all
        for launcher in self._asking.keys() - set(known):
            self._asking.pop(launcher).cancel()
        for launcher in known:
            if launcher not in self._asking:
                self._asking[launcher] = asyncio.create_task(self._keep_asking(launcher))

    async def _follow_names(self) -> None:
        while True:
            try:
                await self.look_up()
            except Exception:  # noqa: BLE001  (logged, and tried again)
                _log.exception("looking names up failed")
            await asyncio.sleep(LOOK_UP_SECONDS)

    async def _keep_asking(self, launcher: Launcher) -> None:
        while True:
            try:
                await self._ask(launcher)
            except Exception:  # noqa: BLE001  (logged, and tried again)
                _log.exception("asking a launcher failed", extra={"fields": {"launcher": launcher.label}})
            await asyncio.sleep(self._ask_seconds)

    async def _ask(self, launcher: Launcher) -> None:
        """Ask once; whatever does not come as a launcher's status leaves its engines as they are."""
        try:
            answer = await self._client.get(
                launcher, "/status", timeout_seconds=ANSWER_SECONDS, limit_bytes=STATUS_BYTES
            )
            told = read_status(*answer)
        except UpstreamUnavailable:
            self._lose(launcher, State.UNREACHABLE, "it takes no connection: it is starting, or down")
        except GatewayError as error:
            self._lose(launcher, State.UNREACHABLE, f"/status is not answered in order: {error.code}")
        except BadStatus as fault:
            self._lose(launcher, State.LOADING, str(fault))
        else:
            if launcher.fault:
                _log.info("launcher answers", extra={"fields": {"launcher": launcher.label}})
            self._apply(*self._upstreams.hear(launcher, told), GONE_FROM_LAUNCHER)

    def _lose(self, launcher: Launcher, state: State, fault: str) -> None:
        if launcher.lose(state, fault):
            fields = {"launcher": launcher.label, "fault": fault}
            _log.warning("launcher does not say what it runs", extra={"fields": fields})

    def _apply(self, added: list[Engine], gone: list[Engine], reason: str) -> None:
        for engine in gone:
            self._leave(engine, reason)
        for engine in added:
            self._watch(engine)
