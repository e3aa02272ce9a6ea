"""What is learned from earlier starts: the median of the last few, kept in a file that may be broken or unwritable."""

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest
from gateway.readiness import StartTimes
from gateway.readiness.starts import FILE_NAME, KEPT_STARTS, MOST_FAMILIES
from gateway.upstreams import Engine, Start


async def test_usual_is_the_median_of_the_last_starts(tmp_path: Path) -> None:
    starts = StartTimes(tmp_path / "made-when-needed")
    starts.load()
    assert starts.usual_seconds("vllm:8000") is None
    for seconds in (1200.0, 900.0, 60.0, 62.0, 58.0, 61.0, 59.0):
        starts.remember("vllm:8000", seconds)
    assert starts.usual_seconds("vllm:8000") == 60.0
    assert starts.usual_seconds("other:8000") is None


async def test_what_was_learned_outlives_the_process(tmp_path: Path) -> None:
    first = StartTimes(tmp_path)
    first.remember("vllm:8000", 61.26)
    await first.close()
    later = StartTimes(tmp_path)
    later.load()
    assert later.usual_seconds("vllm:8000") == 61.3
    assert os.listdir(tmp_path) == [FILE_NAME]  # noqa: PTH208  (nothing half written is left)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"version": 2, "starts": {}}',
        '{"version": 1, "starts": {"a": "x"}}',
        '{"version": 1, "starts": {"a": [NaN]}}',
        '{"version": 1, "starts": {"a": [Infinity]}}',
        '{"version": 1, "starts": {"a": [-1]}}',
    ],
)
async def test_broken_file_is_said_and_replaced(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    starts = StartTimes(tmp_path)
    starts.load()
    assert "GATEWAY_STATE_DIR" in caplog.text
    starts.remember("vllm:8000", 5)
    await starts.close()
    again = StartTimes(tmp_path)
    again.load()
    assert again.usual_seconds("vllm:8000") == 5


async def test_a_start_of_no_time_is_kept_as_the_shortest(tmp_path: Path) -> None:
    starts = StartTimes(tmp_path)
    starts.remember("vllm:8000", 0.01)
    await starts.close()
    again = StartTimes(tmp_path)
    again.load()
    assert again.usual_seconds("vllm:8000") == 0.1


async def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    starts = StartTimes(tmp_path)
    starts.load()
    assert starts.usual_seconds("vllm:8000") is None


async def test_starts_that_end_together_are_all_kept(tmp_path: Path) -> None:
    starts = StartTimes(tmp_path)
    for number in range(20):
        starts.remember(f"engine-{number}", 5)
        await asyncio.sleep(0)
    await starts.close()
    again = StartTimes(tmp_path)
    again.load()
    assert [again.usual_seconds(f"engine-{number}") for number in range(20)] == [5] * 20


async def test_folder_that_cannot_be_written_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    starts = StartTimes(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        starts.load()
        starts.remember("vllm:8000", 5)
        await starts.close()
    assert "cannot be written" in caplog.text
    assert starts.usual_seconds("vllm:8000") == 5


async def test_memory_and_file_are_bounded(tmp_path: Path) -> None:
    starts = StartTimes(tmp_path)
    for number in range(MOST_FAMILIES + 3):
        for seconds in range(1, KEPT_STARTS + 3):
            starts.remember(f"engine-{number}", seconds)
    await starts.close()
    assert starts.usual_seconds("engine-0") is None
    assert starts.usual_seconds(f"engine-{MOST_FAMILIES + 2}") == 5
    assert (tmp_path / FILE_NAME).stat().st_size < 20_000


@pytest.mark.parametrize("seconds", [0, -3, 90_000, float("nan")])
async def test_what_was_no_start_is_not_learned(seconds: float) -> None:
    starts = StartTimes(None)
    starts.remember("vllm:8000", seconds)
    assert starts.usual_seconds("vllm:8000") is None


@pytest.mark.parametrize(("usual", "elapsed", "left"), [(60, 20, 40), (60, 70, None), (None, 20, None)])
def test_time_left_is_known_only_within_what_is_usual(usual: float, elapsed: float, left: float | None) -> None:
    start = Start(time.time() - elapsed, usual)
    assert start.seconds_left == (None if left is None else pytest.approx(left, abs=1))


def test_replicas_behind_one_name_are_one_family() -> None:
    assert Engine("vllm:8000/2", "http://10.0.0.2:8000").family == "vllm:8000"
    assert Engine("127.0.0.1:8000", "http://127.0.0.1:8000").family == "127.0.0.1:8000"
