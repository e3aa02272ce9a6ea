"""What the page reads from the gateway's `/readyz?verbose`."""

from typing import Any

import pytest
from chat_ui.engine_state import READY, UNKNOWN, EngineState, read_report


def engine(state: str, stage: str | None = None, progress: float | None = None) -> dict[str, Any]:
    told = None if stage is None else {"name": stage, "progress": progress, "detail": None, "seconds": 1.0}
    return {"engine": "e", "state": state, "stage": told}


def report(*engines: dict[str, Any], ready: bool = False, seconds_left: float | None = None) -> dict[str, Any]:
    return {"ready": ready, "seconds_left": seconds_left, "engines": list(engines)}


def test_ready_is_ready() -> None:
    assert read_report(report(engine("ready", "serving"), ready=True)) is READY
    assert read_report({"status": "ready"}) is READY


def test_stage_progress_and_time_left_are_the_launchers() -> None:
    state = read_report(report(engine("unreachable", "downloading", 0.5), seconds_left=41.2))
    assert state == EngineState(ready=False, stage="downloading", progress=0.5, seconds_left=41.2)
    assert state.share == pytest.approx(1.5 / 8)


def test_the_engine_that_has_come_furthest_counts() -> None:
    assert read_report(report(engine("loading", "loading", 0.2), engine("unreachable", "checking"))).stage == "loading"


def test_the_gateways_own_word_counts_where_the_launcher_is_done_or_silent() -> None:
    assert read_report(report(engine("warming", "serving"))).stage == "warming"
    assert read_report(report(engine("loading"))).stage == "loading"
    assert read_report(report(engine("draining", "stopping"))).stage == ""
    # It has died, and its launcher has not noticed yet.
    assert read_report(report(engine("unreachable", "serving"))).stage == ""


def test_share_is_that_of_the_time_where_earlier_starts_are_known() -> None:
    start = {"elapsed_seconds": 30.0, "usual_seconds": 90.0, "seconds_left": 60.0}
    state = read_report(report({**engine("unreachable", "starting"), "start": start}, seconds_left=60.0))
    assert state.share == pytest.approx(1 / 3)
    unknown = {"elapsed_seconds": 30.0, "usual_seconds": None, "seconds_left": None}
    assert read_report(report({**engine("unreachable", "starting"), "start": unknown})).share == pytest.approx(3 / 8)


def test_share_grows_with_every_stage() -> None:
    stages = ("checking", "downloading", "starting", "loading", "compiling", "capturing", "warming")
    shares = [read_report(report(engine("loading", stage, 0.9))).share for stage in stages]
    assert shares == sorted(shares)
    assert EngineState(ready=False, stage="warming", progress=1.0).share == 1.0


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        "x",
        {"engines": "none"},
        {"engines": [None, 3]},
        {"engines": [{"state": 4, "stage": "x"}], "seconds_left": "soon"},
        {"engines": [], "seconds_left": -3},
        {"error": {"message": "m", "code": "not_ready"}},
    ],
)
def test_odd_report_tells_nothing(odd: object) -> None:
    assert read_report(odd) == UNKNOWN


def test_odd_progress_is_not_told() -> None:
    assert read_report(report(engine("loading", "loading", -1))).progress is None
    assert read_report(report(engine("loading", "loading", 7))).progress == 1.0
