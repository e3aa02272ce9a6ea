"""When a line of a log was written, in the forms that the services have, and what of it is over."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from ops.doctor.age import Age, ages_of, in_words
from ops.doctor.signature import LOGS

NOW = datetime(2026, 11, 30, 15, 0, 0, tzinfo=UTC)
HEALTHY = Path(__file__).parent / "healthy"


def ages(*lines: str, goes_on: bool = True, now: datetime = NOW) -> list[Age]:
    return ages_of(lines, now, UTC, goes_on=goes_on)


@pytest.mark.parametrize(
    "line",
    [
        '{"time":"2026-11-30T14:59:00.936+00:00","level":"info","logger":"gateway","message":"started"}',
        '{"time":"2026-11-30T14:59:00+00:00","service":"nginx","request_id":"12bb"}',
        "2026/11/30 14:59:00 [error] 28894#28894: *1 connect() failed (111: Connection refused)",
        "2026-11-30 14:59:00,838 launcher: eager: no compilation",
        "(APIServer pid=97) INFO 11-30 14:59:00 [api_server.py:1216] vLLM API server version 0.33.0",
        "2026-11-30T14:59:00Z: the engine ended with exit code 1",
        "2026-11-30T22:59:00+0800 host kernel: NVRM: Xid (PCI:0000:9b:00): 94",
        "2026-11-30T14:59:00,123456+00:00 Out of memory: Killed process 8001 (python)",
    ],
)
def test_the_time_of_a_line_is_read_in_every_form(line: str) -> None:
    assert ages(line) == [Age(60.0, is_past=False)]


def test_a_line_without_a_time_is_as_old_as_the_one_before() -> None:
    lines = ("no time yet", "2026-11-30 12:00:00,1 launcher: x", "Traceback (most recent call last):", "2026-99-99 1:2")
    assert ages(*lines) == [Age(None, is_past=False), *[Age(3 * 3600.0, is_past=True)] * 3]


def test_a_time_without_a_zone_is_in_that_of_whoever_wrote_it() -> None:
    line = ["2026/11/30 22:59:00 [warn] x"]
    assert ages_of(line, NOW, timezone(timedelta(hours=8)), goes_on=True) == [Age(60.0, is_past=False)]


def test_a_time_without_a_year_is_the_last_that_was() -> None:
    new_year = datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert ages("ERROR 12-31 23:59:30 [core.py:1] x", now=new_year) == [Age(60.0, is_past=False)]


def test_what_ended_long_ago_is_still_the_present_of_who_has_not_come_back() -> None:
    lines = (
        "2026-11-30 07:00:00,1 launcher: an earlier fault",
        "2026-11-30 09:00:00,1 launcher: CUDA out of memory",
        "2026-11-30 09:00:05,1 launcher: the engine ended",
    )
    assert [age.is_past for age in ages(*lines, goes_on=True)] == [True, True, True]
    assert [age.is_past for age in ages(*lines, goes_on=False)] == [True, False, False]


@pytest.mark.parametrize("service", LOGS)
def test_every_line_of_a_real_log_has_its_age(service: str) -> None:
    lines = (HEALTHY / f"{service}.txt").read_text(encoding="utf-8").splitlines()
    assert all(age.seconds is not None and age.seconds < 3600 for age in ages(*lines))


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.2, "3 s"), (61, "1 min"), (3 * 3600 + 5, "3 h"), (40 * 3600, "2 d"), (0, "0 s")]
)
def test_a_time_span_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
