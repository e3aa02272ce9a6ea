"""A launcher that is started over and over waits longer each time, and forgets after a good run."""

from pathlib import Path

import pytest
from launcher.supervision.backoff import End, History, summarize, wait_seconds


def row(count: int) -> list[End]:
    """Ends of which the last was at 1000."""
    return [End(1000.0, 8, "vLLM ended", 1.0)] * count


@pytest.mark.parametrize(
    ("count", "seconds"), [(0, 0), (1, 0), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (20, 60)]
)
def test_the_wait_doubles(count: int, seconds: float) -> None:
    assert wait_seconds(row(count), 1000.0) == seconds


def test_time_that_has_passed_counts_and_a_changed_clock_does_not() -> None:
    assert wait_seconds(row(5), 1010.0) == 6
    assert wait_seconds(row(5), 2000.0) == 0
    assert wait_seconds(row(5), 0.0) == 16


def test_a_row_is_kept_for_these_settings_only(tmp_path: Path) -> None:
    history = History(tmp_path / "new", "a")
    assert history.ends() == []
    history.add(End(1.0, 8, "one", 2.0))
    history.add(End(2.0, 13, "two", 2.0))
    assert [end.reason for end in History(tmp_path / "new", "a").ends()] == ["one", "two"]
    assert "exit codes 8, 13" in summarize(history.ends())
    assert summarize(history.ends()).endswith("two")
    assert History(tmp_path / "new", "b").ends() == []


def test_a_good_run_and_an_orderly_stop_begin_anew(tmp_path: Path) -> None:
    history = History(tmp_path, "a")
    history.add(End(1.0, 8, "one", 2.0))
    history.add(End(2.0, 8, "two", 301.0))
    assert history.ends() == []
    history.add(End(3.0, 8, "three", 2.0))
    history.clear()
    assert history.ends() == []


@pytest.mark.parametrize("text", ["", "[]", '{"settings": 1}', '{"settings": "x", "ends": [{}]}', "\x00"])
def test_a_damaged_file_is_no_reason_to_wait(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "recent-ends.json").write_text(text)
    assert History(tmp_path, "a").ends() == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    History(tmp_path / "file", "a").add(End(1.0, 8, "one", 2.0))
    assert "could not be noted" in caplog.text
