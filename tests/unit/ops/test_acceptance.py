"""The acceptance test's own judgement: figures against limits, refusals told from faults, and what is written."""

import json
import re

import pytest

from ops import plot
from ops.acceptance.asking import Reply, read_wait
from ops.acceptance.check import ON_CARD, Check, Verdict, below, percentile, skipped, without_failure
from ops.acceptance.run import Result
from ops.acceptance.speed import Measured
from ops.figures import total

GOOD = Reply(0.1, 1.0, 40, "你好", 200)
LIMITED = Reply(0.0, 0.1, 0, "", 429, "429: You have had your 120 requests a minute for now.")
BROKEN = Reply(0.0, 0.1, 0, "", 502, "502: The engine closed the connection.")


def result(*checks: Check) -> Result:
    return Result(checks, ON_CARD, Measured([GOOD, BROKEN], {1: 599.0, 16: 4708.0}), "ernie <demo>")


def test_figures_are_held_to_the_promised_limits() -> None:
    assert (ON_CARD.first_reply_seconds, ON_CARD.mean_seconds, ON_CARD.first_token_seconds) == (1.8, 2.1, 0.3)
    assert below("x", 1.8, 1.8).verdict is Verdict.PASS
    assert below("x", 2.1, 2.1, strict=True).verdict is Verdict.FAIL
    assert below("x", 1.81, 1.8).verdict is Verdict.FAIL


def test_a_refusal_for_the_clients_limits_is_no_fault_and_no_pass() -> None:
    assert without_failure("x", [GOOD, GOOD]).verdict is Verdict.PASS
    assert without_failure("x", [GOOD, BROKEN]).verdict is Verdict.FAIL
    check = without_failure("x", [GOOD, LIMITED])
    assert check.verdict is Verdict.SKIPPED
    assert "STACK_API_KEY" in check.reason


def test_what_acceptance_stands_on_may_not_be_skipped() -> None:
    good = below("x", 1, 2)
    assert result(good, skipped("y", "", "")).is_accepted
    assert not result(good, skipped("y", "", "", required=True)).is_accepted
    assert not result(good, below("z", 3, 2)).is_accepted


@pytest.mark.parametrize(("text", "seconds"), [("1m0s", 60), ("12s", 12), ("0.5s", 0.5), ("1h2m3s", 3723), ("?", 0)])
def test_the_gateways_times_are_read(text: str, seconds: float) -> None:
    assert read_wait(text) == seconds


def test_percentiles_are_measured_values() -> None:
    values = [float(number) for number in range(1, 21)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([], 0.5)) == (11.0, 20.0, 0.0)


def test_the_report_is_whole_and_loads_nothing() -> None:
    page = result(below("first reply", 3, 1.8), skipped("64 streams", "", "no <key>")).as_page()
    assert page.count("<svg") == 3
    assert '<td class="fail">fail</td>' in page
    assert "no &lt;key&gt;" in page
    assert "ernie &lt;demo&gt;" in page
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
    told = json.loads(result(below("first reply", 3, 1.8)).as_json())
    assert told["accepted"] is False
    assert told["checks"][0]["verdict"] == "fail"


def test_pictures_of_nothing_are_drawn_too() -> None:
    for picture in (plot.bars("a", "s", {}), plot.dots("a", "s", []), plot.lines("a", "s", [], {"x": []})):
        assert picture.startswith("<svg")
        assert "nan" not in picture


def test_a_line_is_broken_where_nothing_is_known_and_its_axes_are_read_by_people() -> None:
    picture = plot.lines("a", "MB", [0, 2700, 5400, 8100, 10800], {"x": [1575.4, 1.0, None, 3.0, 4.0], "y": [None] * 5})
    assert picture.count("<polyline") == 2
    assert [label for label in ("0 h", "1.5 h", "3 h", "1,575") if f">{label}<" not in picture] == []
    short = plot.lines("a", "s", [0, 300, 540], {"x": [1, 2, 3]})
    assert [label for label in ("0 min", "4.5 min", "9 min") if f">{label}<" not in short] == []


def test_figures_of_a_scrape_are_added_up_by_label() -> None:
    text = 'a_total{k="x",e="1"} 2\na_total{k="x",e="2"} 3\na_total{k="y"} 7\n'
    assert total(f"# TYPE a counter\n{text}", "a_total", k="x") == 5
    assert total(None, "a_total") == 0
