"""The state of all engines together: one watching task each, and the answer to `/readyz`."""

import asyncio
import logging
from collections.abc import Callable

from gateway.errors import GatewayError, ShuttingDown
from gateway.metrics import Metrics
from gateway.readiness.following import ASK_SECONDS, Following
from gateway.readiness.report import report_of
from gateway.readiness.starts import StartTimes
from gateway.readiness.transitions import Transitions
from gateway.readiness.watch import EngineWatch, WatchTimes
from gateway.schemas import ReadinessReport
from gateway.upstreams import STATES, Engine, EngineClient, State, Upstreams

_log = logging.getLogger("gateway.readiness")


class Readiness:
    """Starts and stops the watching of engines, and says whether requests are taken.

    `on_change` is called whenever an engine may have begun or ceased to take requests.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        client: EngineClient,
        metrics: Metrics,
        starts: StartTimes,
        times: WatchTimes,
        *,
        warmup: bool,
        on_change: Callable[[], None],
    ) -> None:
        self._upstreams = upstreams
        self._starts = starts
        self._on_change = on_change
        self._transitions = Transitions(on_change)
        self._client = client
        self._metrics = metrics
        self._times = times
        self._warmup = warmup
        metrics.show_engines_from(lambda: upstreams.ready, lambda: upstreams.engines, STATES)
        self._watches: dict[Engine, asyncio.Task[None]] = {}
        self._following = Following(
            upstreams,
            client,
            min(ASK_SECONDS, times.interval),
            watch=self._watch,
            leave=self._leave,
            forget=self._on_change,
        )

    def start(self) -> None:
        """Begin to watch every engine."""
        self._starts.load()
        for engine in self._upstreams.staying:
            self._watch(engine)
        self._following.start()

    async def stop(self) -> None:
        """End all watching."""
        await self._following.stop()
        tasks = list(self._watches.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._starts.close()

    def drain(self) -> None:
        """Fall to "not ready" for good: the gateway is stopping."""
        self._upstreams.close()
        self._on_change()

    def error(self) -> GatewayError | None:
        """Return why no requests are taken, or None if they are."""
        if self._upstreams.closing:
            return ShuttingDown()
        return None if self._upstreams.ready else self._upstreams.not_ready()

    def report(self, notes: list[str]) -> ReadinessReport:
        """Return the state of every engine, and of every launcher that has none yet, with what others have noted."""
        return report_of(self._upstreams, self.error(), notes)

    def _watch(self, engine: Engine) -> None:
        self._on_change()
        self._watches[engine] = asyncio.create_task(self._keep_watching(engine, is_proved=engine.is_proved))

    async def _keep_watching(self, engine: Engine, *, is_proved: bool) -> None:
        while True:
            watch = EngineWatch(
                engine,
                self._client,
                metrics=self._metrics,
                transitions=self._transitions,
                starts=self._starts,
                times=self._times,
                warmup=self._warmup,
                is_proved=is_proved,
            )
            is_proved = False
            try:
                await watch.run()
            except Exception:  # noqa: BLE001  (logged, and tried again)
                # A fault of ours must not leave an engine unwatched.
                _log.exception("watching failed", extra={"fields": {"engine": engine.label}})
                await asyncio.sleep(self._times.interval)

    def _leave(self, engine: Engine, reason: str) -> None:
        self._watches.pop(engine).cancel()
        engine.start = None
        self._transitions.enter(engine, State.DRAINING, f"its last answers; {reason}")

    async def look_up(self) -> None:
        """Look the names up once, and begin or end the watching of what has changed."""
        await self._following.look_up()
