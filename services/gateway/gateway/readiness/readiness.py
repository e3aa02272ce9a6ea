"""The state of all engines together: one watching task each, and the answer to `/readyz`."""

import asyncio
import logging
import time
from datetime import UTC, datetime

from gateway.errors import RETRY_AFTER_SECONDS, GatewayError, NotReady, ShuttingDown
from gateway.metrics import Metrics
from gateway.readiness.watch import EngineWatch, WatchTimes, enter
from gateway.schemas import EngineReport, ReadinessReport
from gateway.upstreams import STATES, Engine, EngineClient, State, Upstreams

_log = logging.getLogger("gateway.readiness")
# Docker's name service forgets a container at once and knows a new one within a second.
LOOK_UP_SECONDS = 5.0


class Readiness:
    """Starts and stops the watching of engines, and says whether requests are taken."""

    def __init__(
        self, upstreams: Upstreams, client: EngineClient, metrics: Metrics, times: WatchTimes, *, warmup: bool
    ) -> None:
        self._upstreams = upstreams
        self._client = client
        self._metrics = metrics
        self._times = times
        self._warmup = warmup
        self._watches: dict[Engine, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch every engine."""
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

    def drain(self) -> None:
        """Fall to "not ready" for good: the gateway is stopping."""
        self._upstreams.close()

    def error(self) -> GatewayError | None:
        """Return why no requests are taken, or None if they are."""
        if self._upstreams.closing:
            return ShuttingDown("The gateway is stopping.", retry_after=RETRY_AFTER_SECONDS)
        if not self._upstreams.ready:
            return NotReady(f"No engine is ready ({self._upstreams.waits_for()}).", retry_after=RETRY_AFTER_SECONDS)
        return None

    def report(self) -> ReadinessReport:
        """Return the state of every engine."""
        error = self.error()
        return ReadinessReport(
            ready=error is None,
            draining=self._upstreams.closing,
            waits_for=error.message if error else None,
            engines=[_report(engine) for engine in self._upstreams.engines],
        )

    def _watch(self, engine: Engine) -> None:
        self._metrics.show_engine(engine.label, engine.state, STATES)
        self._watches[engine] = asyncio.create_task(self._keep_watching(engine))

    async def _keep_watching(self, engine: Engine) -> None:
        while True:
            watch = EngineWatch(engine, self._client, self._metrics, self._times, warmup=self._warmup)
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
            enter(engine, State.DRAINING, "its last answers; its address is gone from the name service", self._metrics)
        for engine in self._upstreams.drop_finished():
            self._metrics.forget_engine(engine.label, STATES)
        for engine in added:
            self._watch(engine)


def _report(engine: Engine) -> EngineReport:
    return EngineReport(
        engine=engine.label,
        state=engine.state,
        since=datetime.fromtimestamp(engine.since, UTC).isoformat(timespec="seconds"),
        seconds_in_state=round(time.time() - engine.since, 1),
        waits_for=engine.waits_for,
        models=[model["id"] for model in engine.models],
        outstanding=engine.outstanding,
        warmup_ttft_seconds=engine.warmup_ttft_seconds,
    )
