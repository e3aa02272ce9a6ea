"""Watching one engine: prove it, then see that it goes on working.

Down is not busy. An engine that has work, whose counters stand still and that leaves a probe unanswered for
`stall` seconds takes no more requests until a probe succeeds; one whose counters move is left alone.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.errors import GatewayError, UpstreamTimeout, UpstreamUnavailable
from gateway.metrics import Metrics
from gateway.readiness.aborts import Aborts
from gateway.readiness.counters import Counters, read_counters
from gateway.readiness.doubt import fault_of
from gateway.readiness.process import ProcessStart
from gateway.readiness.starts import StartTimes
from gateway.readiness.transitions import Transitions
from gateway.readiness.trial import TrialFault, is_alive
from gateway.readiness.warmup import warm_up
from gateway.upstreams import Engine, EngineClient, Load, Start, State

_OK = 200
LOOK_SECONDS = 2.0
HEALTH_BYTES = 65_536
MODELS_BYTES = 1_048_576
METRICS_BYTES = 4_194_304
# While an abort waits to be confirmed.
CONFIRM_LOOK_SECONDS = 0.25
# An engine's process may have begun this long before a look finds that the one before is gone.
START_SLACK_SECONDS = 5.0
# What an engine that is told to stop goes through before it is unreachable.
_STOPS_IN = frozenset({State.LOADING, State.DRAINING})
# The share of the stall time after which a probe is sent; the rest is the probe's.
PROBE_AFTER_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class WatchTimes:
    """Seconds between two looks, until an engine counts as stalled, and for one warm-up generation."""

    interval: float
    stall: float
    trial: float


class _NotProved(Exception):  # noqa: N818  (a finding, not an error of ours)
    """The engine has to prove itself again; carries the state it falls to and why."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


class EngineWatch:
    """The task of one engine, which alone changes its state as long as the engine is known.

    It has to prove itself first, unless it `is_proved` by somebody who watched it before.
    """

    def __init__(
        self,
        engine: Engine,
        client: EngineClient,
        *,
        metrics: Metrics,
        transitions: Transitions,
        starts: StartTimes,
        times: WatchTimes,
        warmup: bool,
        is_proved: bool,
    ) -> None:
        self._engine = engine
        self._client = client
        self._transitions = transitions
        self._starts = starts
        self._times = times
        self._warmup = warmup
        self._is_proved = is_proved
        self._progress: tuple[float, int] = (-1.0, 0)
        self._last_movement_at = time.monotonic()
        self._process = ProcessStart(engine)
        self._aborts = Aborts(engine, metrics)
        self._probe: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Prove and watch until cancelled."""
        try:
            while True:
                try:
                    self._transitions.begin_look(self._engine)
                    await (self._look() if self._is_proved else self._prove())
                    self._is_proved = True
                    while True:
                        self._transitions.end_look(self._engine)
                        await self._pause()
                        self._transitions.begin_look(self._engine)
                        await self._look()
                except _NotProved as fall:
                    self._is_proved = False
                    if fall.state is not State.WARMING:
                        self._note_away(fall.state)
                    self._enter(fall.state, fall.reason)
                    self._drop_probe()
                    self._aborts.give_up(older_than_seconds=0)
                    self._transitions.end_look(self._engine)
                    await self._pause()
        finally:
            self._drop_probe()

    async def _prove(self) -> None:
        engine = self._engine
        await self._check_health()
        engine.models = await self._models()
        if self._process.note(await self._counters()):
            self._measure_start()
        if self._warmup:
            self._enter(State.WARMING, "warm-up generations")
            try:
                engine.warmup_ttft_seconds = await warm_up(self._client, engine, self._times.trial)
            except TrialFault as fault:
                raise _NotProved(State.WARMING, f"a sound warm-up: {fault}") from None
            except TimeoutError:
                raise _NotProved(State.WARMING, f"a warm-up generation within {self._times.trial:g} s") from None
            except GatewayError as error:
                raise _fallen(error, State.WARMING) from None
        self._last_movement_at = time.monotonic()
        start, engine.start = engine.start, None
        self._enter(State.READY, None)
        if start and start.is_measured:
            self._starts.remember(engine.family, start.elapsed_seconds)

    def _note_away(self, state: State) -> None:
        """Begin to count the time of a start, until the process itself says when it began.

        An engine that stops in order is loading or draining first, for as long as it finishes what it has; that is no
        start yet. Nor is the time until its launcher says that the process has begun.
        """
        engine = self._engine
        has_stopped = engine.state in _STOPS_IN and state is State.UNREACHABLE
        if engine.start is None or engine.start.is_measured or has_stopped:
            engine.start = Start(time.time(), self._starts.usual_seconds(engine.family))
        if engine.start.began_at < self._process.told <= time.time():
            engine.start.began_at = self._process.told

    def _measure_start(self) -> None:
        """Take the process's own word for when it began, if that was since the engine was seen to be away.

        One that is older has not started now: it could not be reached for a while, or was busy.
        """
        start = self._engine.start
        began_at = self._process.at
        if start and start.began_at - self._times.interval - START_SLACK_SECONDS <= began_at <= time.time():
            start.began_at = began_at
            start.is_measured = True

    async def _check_health(self) -> None:
        try:
            status, _ = await self._get("/health", HEALTH_BYTES)
        except GatewayError as error:
            raise _fallen(error, State.UNREACHABLE) from None
        if self._engine.is_stopping:
            raise _NotProved(State.DRAINING, "its last answers; it is being stopped")
        if status != _OK:
            raise _NotProved(State.LOADING, f"/health to answer 200; it answers {status}")

    async def _models(self) -> list[dict[str, Any]]:
        try:
            status, body = await self._get("/v1/models", MODELS_BYTES)
            listed = orjson.loads(body)["data"] if status == _OK else []
            models = [model for model in listed if isinstance(model["id"], str)]
        except GatewayError as error:
            raise _fallen(error, State.LOADING) from None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            models = []
        if not models:
            raise _NotProved(State.LOADING, "a model in /v1/models")
        return models

    async def _counters(self) -> Counters | None:
        try:
            status, body = await self._get("/metrics", METRICS_BYTES)
        except GatewayError:
            # No evidence either way; `_look` judges by what else is known.
            return None
        counters = read_counters(body) if status == _OK else None
        if counters:
            load = Load(counters.waiting, counters.running, self._engine.outstanding, counters.cache)
            self._transitions.show_load(self._engine, load)
        return counters

    async def _get(self, path: str, limit_bytes: int) -> tuple[int, bytes]:
        return await self._client.get(self._engine, path, timeout_seconds=LOOK_SECONDS, limit_bytes=limit_bytes)

    async def _look(self) -> None:
        """Look once at a proved engine and draw the consequence."""
        answers, counters = await asyncio.gather(self._answers(), self._counters())
        if self._process.has_changed(counters):
            raise _NotProved(State.LOADING, "a new look: the engine was restarted")
        if (
            self._warmup
            and self._engine.is_doubted
            and (fault := await fault_of(self._client, self._engine, self._times.trial))
        ):
            raise _NotProved(State.WARMING, f"a sound answer: {fault}")
        probes = 1 if self._probe is not None and not self._probe.done() else 0
        self._aborts.settle(counters, probes)
        if answers:
            self._transitions.clear(self._engine)
        if self._engine.state is State.STALLED:
            self._look_at_stalled()
        else:
            self._judge(counters, answers=answers)

    async def _answers(self) -> bool:
        """Tell whether /health answers in time; raise _NotProved if it denies or cannot be reached.

        A slow answer is no proof of anything: a full engine may be that slow.
        """
        try:
            await self._check_health()
        except _NotProved as fall:
            if isinstance(fall.__context__, UpstreamTimeout) and not self._engine.is_stopping:
                return False
            raise
        return True

    def _judge(self, counters: Counters | None, *, answers: bool) -> None:
        now = time.monotonic()
        engine = self._engine
        # Without fresh counters only what we received ourselves can show movement.
        tokens = counters.tokens if counters else self._progress[0]
        progress = (tokens, engine.chunks_received)
        moved = progress != self._progress
        self._progress = progress
        queued = (counters.running + counters.waiting if counters else 0.0) or engine.outstanding
        if moved or (answers and not queued) or self._probe_succeeded():
            self._last_movement_at = now
            self._drop_probe()
            waiting = counters.waiting if counters else 0.0
            if waiting:
                self._enter(State.BUSY, f"{waiting:.0f} requests in the engine's own queue")
            else:
                self._enter(State.READY, None)
            return
        still = now - self._last_movement_at
        grace = self._times.stall * PROBE_AFTER_SHARE
        if self._probe is None:
            if still >= grace:
                self._send_probe(max(self._times.stall - still, grace))
        elif still >= self._times.stall and self._probe.done():
            self._drop_probe()
            self._enter(State.STALLED, "a probe to be answered; there is work and nothing moves")

    def _look_at_stalled(self) -> None:
        if self._probe_succeeded():
            self._drop_probe()
            self._last_movement_at = time.monotonic()
            self._enter(State.READY, None)
        elif self._probe is None or self._probe.done():
            self._send_probe(max(LOOK_SECONDS, self._times.stall * PROBE_AFTER_SHARE))

    def _send_probe(self, timeout_seconds: float) -> None:
        self._probe = asyncio.create_task(is_alive(self._client, self._engine, timeout_seconds))
        self._probe.add_done_callback(lambda _: self._engine.attention.set())

    def _probe_succeeded(self) -> bool:
        probe = self._probe
        return probe is not None and probe.done() and not probe.cancelled() and probe.result()

    def _drop_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None

    async def _pause(self) -> None:
        """Wait for the next turn, or for something that asks for attention."""
        attention = self._engine.attention
        hurry = bool(self._engine.unsettled_aborts)
        try:
            async with asyncio.timeout(CONFIRM_LOOK_SECONDS if hurry else self._times.interval):
                await attention.wait()
            # What asked may come in crowds: one look answers all.
            await asyncio.sleep(min(CONFIRM_LOOK_SECONDS, self._times.interval))
        except TimeoutError:
            pass
        attention.clear()

    def _enter(self, state: State, waits_for: str | None) -> None:
        self._transitions.enter(self._engine, state, waits_for)


def _fallen(error: GatewayError, state: State) -> _NotProved:
    """Return the fall that a failed call means: whatever cannot be connected to is unreachable."""
    if isinstance(error, UpstreamUnavailable):
        return _NotProved(State.UNREACHABLE, "the engine to accept connections: it is starting, or down")
    return _NotProved(state, f"an answer: {error.message}")
