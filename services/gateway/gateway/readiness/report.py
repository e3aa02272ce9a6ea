"""What `/readyz?verbose` tells: every engine, and every launcher of which no engine is known yet."""

import time
from datetime import UTC, datetime

from gateway.errors import GatewayError
from gateway.schemas import EngineReport, ReadinessReport, StageReport, StartReport
from gateway.upstreams import Engine, Launcher, Stage, Start, State, Upstreams

_STARTS_IN = frozenset({State.UNREACHABLE, State.LOADING})


def report_of(upstreams: Upstreams, error: GatewayError | None, notes: list[str]) -> ReadinessReport:
    """Return the report; `error` is why no requests are taken, None if they are."""
    launchers = [launcher for launcher in upstreams.launchers.all if not launcher.engines]
    return ReadinessReport(
        ready=error is None,
        draining=upstreams.closing,
        waits_for=error.message if error else None,
        seconds_left=None if error is None else _rounded(upstreams.seconds_left()),
        engines=[
            *(_of_engine(engine) for engine in upstreams.engines),
            *(_of_launcher(launcher) for launcher in launchers),
            *(_of_name(name) for name in upstreams.launchers.names_without_address),
        ],
        notes=notes,
    )


def _of_engine(engine: Engine) -> EngineReport:
    told = engine.told
    starts = told is not None and told.is_before_serving and engine.state in _STARTS_IN
    return EngineReport(
        engine=engine.label,
        state=engine.shown_state,
        since=_written(engine.since),
        seconds_in_state=round(time.time() - engine.since, 1),
        waits_for=told.words if told and starts else engine.waits_for,
        models=[model["id"] for model in engine.models],
        outstanding=engine.outstanding,
        warmup_ttft_seconds=engine.warmup_ttft_seconds,
        start=_of_start(engine.start) if engine.start else None,
        stage=_of_stage(told),
    )


def _of_launcher(launcher: Launcher) -> EngineReport:
    told = launcher.told
    waits_for = launcher.fault or (told.words if told else None)
    return _without_engine(launcher.label, launcher.state, launcher.since, waits_for, told)


def _of_name(name: str) -> EngineReport:
    return _without_engine(name, State.UNREACHABLE, time.time(), "an address of its launcher's name", None)


def _without_engine(label: str, state: State, since: float, waits_for: str | None, told: Stage | None) -> EngineReport:
    return EngineReport(
        engine=label,
        state=state,
        since=_written(since),
        seconds_in_state=round(time.time() - since, 1),
        waits_for=waits_for,
        models=[],
        outstanding=0,
        warmup_ttft_seconds=None,
        start=None,
        stage=_of_stage(told),
    )


def _of_stage(told: Stage | None) -> StageReport | None:
    if told is None:
        return None
    seconds = round(max(0.0, time.time() - told.since), 1)
    return StageReport(name=told.stage, progress=told.progress, detail=told.detail, seconds=seconds)


def _of_start(start: Start) -> StartReport:
    return StartReport(
        elapsed_seconds=round(start.elapsed_seconds, 1),
        usual_seconds=_rounded(start.usual_seconds),
        seconds_left=_rounded(start.seconds_left),
    )


def _written(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec="seconds")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
