"""The state of all engines together: one watching task each, and the answer to `/readyz`."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gateway.errors import GatewayError, ShuttingDown
from gateway.metrics import Metrics
from gateway.readiness.starts import StartTimes
from gateway.readiness.transitions import Transitions
from gateway.readiness.watch import EngineWatch, WatchTimes
from gateway.schemas import EngineReport, ReadinessReport, StartReport
from gateway.upstreams import STATES, Engine, EngineClient, Start, State, Upstreams

_log = logging.getLogger("gateway.readiness")
# Docker's name service forgets a container at once and knows a new one within a second.
LOOK_UP_SECONDS = 5.0


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
        self._transitions = Transitions(metrics, on_change)
        self._client = client
        self._metrics = metrics
        self._times = times
        self._warmup = warmup
        self._watches: dict[Engine, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch every engine."""
        self._starts.load()
        self._metrics.show_ready_from(lambda: self._upstreams.ready)
        for engine in self._upstreams.engines:
            self._watch(engine)
        if self._upstreams.has_names:
            self._following = asyncio.create_task(self._follow_names())

    async def stop(self) -> None:
        """End all watching."""
        tasks = [*self._watches.values(), *([self._following] if self._following else [])]
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

    def report(self) -> ReadinessReport:
        """Return the state of every engine."""
        error = self.error()
        return ReadinessReport(
            ready=error is None,
            draining=self._upstreams.closing,
            waits_for=error.message if error else None,
            seconds_left=None if error is None else _rounded(self._upstreams.seconds_left()),
            engines=[_report(engine) for engine in self._upstreams.engines],
        )

    def _watch(self, engine: Engine) -> None:
        self._transitions.show(engine)
        self._watches[engine] = asyncio.create_task(self._keep_watching(engine))

    async def _keep_watching(self, engine: Engine) -> None:
        while True:
            watch = EngineWatch(
                engine,
                self._client,
                metrics=self._metrics,
                transitions=self._transitions,
                starts=self._starts,
                times=self._times,
                warmup=self._warmup,
            )
            try:
                await watch.run()
            except Exception:  # noqa: BLE001  (logged, and tried again)
                # A fault of ours must not leave an engine unwatched.
                _log.exception("watching failed", extra={"fields": {"engine": engine.label}})
                await asyncio.sleep(self._times.interval)

    async def _follow_names(self) -> None:
        while True:
            try:
                await self.look_up()
            except Exception:  # noqa: BLE001  (logged, and tried again)
                _log.exception("looking names up failed")
            await asyncio.sleep(LOOK_UP_SECONDS)

    async def look_up(self) -> None:
        """Look the names up once, and begin or end the watching of what has changed."""
        added, gone = await self._upstreams.look_up(LOOK_UP_SECONDS)
        for engine in gone:
            self._watches.pop(engine).cancel()
            engine.start = None
            self._transitions.enter(
                engine, State.DRAINING, "its last answers; its address is gone from the name service"
            )
        for engine in self._upstreams.drop_finished():
            self._metrics.forget_engine(engine.label, STATES)
        for engine in added:
            self._watch(engine)


def _report(engine: Engine) -> EngineReport:
    return EngineReport(
        engine=engine.label,
        state=engine.shown_state,
        since=datetime.fromtimestamp(engine.since, UTC).isoformat(timespec="seconds"),
        seconds_in_state=round(time.time() - engine.since, 1),
        waits_for=engine.waits_for,
        models=[model["id"] for model in engine.models],
        outstanding=engine.outstanding,
        warmup_ttft_seconds=engine.warmup_ttft_seconds,
        start=_start_report(engine.start) if engine.start else None,
    )


def _start_report(start: Start) -> StartReport:
    return StartReport(
        elapsed_seconds=round(start.elapsed_seconds, 1),
        usual_seconds=_rounded(start.usual_seconds),
        seconds_left=_rounded(start.seconds_left),
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
