"""The soak's verdict: what grows, slows, fails or restarts is named, and what only jitters is not."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ops.soak.run import Result
from ops.soak.sample import Record, Sample, restarted
from ops.soak.verdict import judge
from ops.way import Usage

MB = 1024**2


def usage(memory: float = 1000 * MB, handles: int = 100, threads: int = 20, started: str = "1") -> dict[str, Usage]:
    return {"gateway": Usage(int(memory), handles, threads, started)}


def samples(of: Callable[[int], dict[str, Usage]], seconds: Callable[[int], float] = lambda _: 0.2) -> list[Sample]:
    return [
        Sample(number * 5.0, 5, {}, seconds(number), 1.0 + seconds(number), 2.0, 200, of(number))
        for number in range(40)
    ]


def bad(found: list[Sample]) -> set[str]:
    return {finding.name for finding in judge(found) if not finding.is_good}


def test_steady_is_sound_and_so_is_a_little_jitter() -> None:
    assert bad(samples(lambda _: usage())) == set()
    assert bad(samples(lambda n: usage(1000 * MB + (n % 3) * 10 * MB, 100 + n % 5, 20 + n % 2))) == set()
    # What a warm-up takes is no leak.
    assert bad(samples(lambda n: usage(300 * MB if n < 6 else 1000 * MB))) == set()


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (lambda n: usage(1000 * MB + n * 8 * MB), "memory of gateway"),
        (lambda n: usage(handles=100 + 4 * n), "handles of gateway"),
        (lambda n: usage(threads=20 + 2 * n), "threads of gateway"),
    ],
)
def test_a_leak_is_named(of: Callable[[int], dict[str, Usage]], name: str) -> None:
    assert bad(samples(of)) == {name}


def test_slower_answers_are_named() -> None:
    assert bad(samples(lambda _: usage(), lambda n: 0.2 + n * 0.02)) == {"first token, p50, drift"}


def test_the_report_draws_the_card_where_there_is_one_and_no_latency_where_nothing_was_answered() -> None:
    found = samples(lambda _: usage())
    found[7] = Sample(35, 0, {}, 0.0, 0.0, 0.0, 0, usage())
    page = Result(found, judge(found), 200.0, was_interrupted=False).as_page()
    assert ">card<" not in page
    # Memory, handles and threads of one service; three latencies, each with a gap.
    assert page.count("<polyline") == 3 + 2 * 3
    with_card = [replace(sample, card_bytes=6 * 10**9) for sample in found]
    assert ">card<" in Result(with_card, judge(with_card), 200.0, was_interrupted=False).as_page()


def test_faults_and_restarts_are_named() -> None:
    found = samples(lambda _: usage())
    found[7] = Sample(35, 5, {"502: broken": 2}, 0.2, 1.0, 2.0, 100, usage(), restarted=("gateway",))
    assert bad(found) == {"faults", "restarts"}
    assert bad([]) == {"questions asked"}


def test_a_service_that_starts_anew_or_is_gone_has_restarted() -> None:
    assert restarted(usage(), usage()) == ()
    assert restarted(usage(), usage(started="2")) == ("gateway",)
    assert restarted(usage(), {}) == ("gateway",)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    found = samples(lambda _: usage())
    record = Record(tmp_path / "a" / "samples.jsonl")
    for sample in found:
        record.add(sample)
    lines = (tmp_path / "a" / "samples.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["usage"]["gateway"]["handles"] == 100
    result = Result(found, judge(found), 200.0, was_interrupted=True)
    assert json.loads(result.as_json())["interrupted"] is True
    page = result.as_page()
    assert page.count("<svg") == 4
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
