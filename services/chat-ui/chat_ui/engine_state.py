"""How far the engine is, as the gateway's `/readyz?verbose` tells it."""

from dataclasses import dataclass, replace
from typing import Any

# In the order in which an engine goes through them; the launcher's words and the gateway's.
STAGES = (
    "checking",
    "downloading",
    "waiting",
    "starting",
    "loading",
    "compiling",
    "capturing",
    "warming",
    "serving",
)
# What the gateway sees by itself, where no launcher tells more.
STATES = {"unreachable": "starting", "loading": "loading", "warming": "warming", "busy": "serving", "ready": "serving"}


@dataclass(frozen=True, slots=True)
class EngineState:
    """The engine that has come furthest: its stage, how much of the stage is done, and how long the rest should take.

    `progress` is a share of 1. `stage` is empty where nobody tells, what else is not told None.
    """

    ready: bool
    stage: str = ""
    progress: float | None = None
    elapsed_seconds: float | None = None
    seconds_left: float | None = None

    @property
    def share(self) -> float | None:
        """How much of the whole start is done: by earlier starts where they are known, else by its stages."""
        if self.elapsed_seconds is not None and self.seconds_left is not None:
            return self.elapsed_seconds / max(self.elapsed_seconds + self.seconds_left, 1.0)
        return self.share_by_stage

    @property
    def share_by_stage(self) -> float | None:
        """The same by its stages alone; None where none is told."""
        if self.stage not in STAGES:
            return None
        return (STAGES.index(self.stage) + (self.progress or 0.0)) / (len(STAGES) - 1)


READY = EngineState(ready=True)
UNKNOWN = EngineState(ready=False)


def read_report(report: Any) -> EngineState:
    """Read the gateway's report; what is missing or of another kind counts as not told."""
    if not isinstance(report, dict):
        return UNKNOWN
    if report.get("ready") is True or report.get("status") == "ready":
        return READY
    engines = report.get("engines")
    states = [_of_engine(engine) for engine in engines if isinstance(engine, dict)] if isinstance(engines, list) else []
    furthest = max(states, key=lambda state: state.share_by_stage or 0.0, default=UNKNOWN)
    return replace(furthest, seconds_left=_number(report.get("seconds_left")))


def _of_engine(engine: dict[str, Any]) -> EngineState:
    state = str(engine.get("state"))
    told, start = _object(engine.get("stage")), _object(engine.get("start"))
    elapsed_seconds = _number(start.get("elapsed_seconds"))
    name = told.get("name")
    # A launcher is done when its engine warms up.
    if state == "warming" or name not in STAGES:
        return EngineState(ready=False, stage=STATES.get(state, ""), elapsed_seconds=elapsed_seconds)
    # For a moment it says so of an engine that has died, too.
    if name == "serving" and STATES.get(state) != "serving":
        return EngineState(ready=False, elapsed_seconds=elapsed_seconds)
    progress = _number(told.get("progress"))
    return EngineState(
        ready=False,
        stage=str(name),
        progress=None if progress is None else min(progress, 1.0),
        elapsed_seconds=elapsed_seconds,
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return float(value)
