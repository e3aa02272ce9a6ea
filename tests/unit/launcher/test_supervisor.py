"""The supervisor with real processes and real signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
SERVICE = HERE.parents[2] / "services" / "vllm"
PATIENCE_SECONDS = 20.0


class Supervised:
    """A supervisor process with its child, read line by line."""

    def __init__(
        self, kind: str, *, start_seconds: float = 15, stop_seconds: float = 15, announcing: str = "works"
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [
                *(sys.executable, HERE / "supervise.py", kind, str(self.port)),
                *(str(start_seconds), str(stop_seconds), announcing),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SERVICE)},
        )
        self.lines: list[str] = []
        self.ids: list[int] = []

    @property
    def output(self) -> IO[str]:
        """What the supervisor and its child print."""
        assert self.process.stdout is not None
        return self.process.stdout

    def until(self, text: str) -> None:
        """Read on until a line has the text, unless one had it already; a closed output is a failure."""
        if any(text in line for line in self.lines):
            return
        for line in self.output:
            self.note(line)
            if text in line:
                return
        pytest.fail(f"{text!r} never came: {self.lines}")

    def finish(self) -> str:
        """Wait for the end and return all that was printed."""
        for line in self.output:
            self.note(line)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.lines
        return "".join(self.lines)

    def note(self, line: str) -> None:
        """Keep a line, and the process ids of a `ready` line."""
        self.lines.append(line)
        if " ready " in line:
            self.ids += [int(word) for word in line.split(" ready ")[1].split()]


Start = Callable[..., Supervised]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start supervisors; nothing of theirs outlives the test."""
    started: list[Supervised] = []

    def begin(kind: str, **how: Any) -> Supervised:
        started.append(Supervised(kind, **how))
        return started[-1]

    yield begin
    for supervised in started:
        supervised.process.kill()
        supervised.process.wait()
        supervised.output.close()
        for number in supervised.ids:
            if _alive(number):
                os.kill(number, signal.SIGKILL)


def _alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _all_gone(numbers: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(_alive(number) for number in numbers):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return bool(numbers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_ends_the_child(start: Start, number: signal.Signals) -> None:
    supervised = start("obedient")
    supervised.until("healthy after")
    supervised.process.send_signal(number)
    text = supervised.finish()
    assert f"Outcome(status=-15, stopped_by=<Signals.{number.name}" in text
    order = ["stopping on", "notice is up", "child was asked to end", "Outcome"]
    assert sorted(order, key=text.index) == order
    assert _all_gone(supervised.ids)


def test_a_short_limit_still_asks_before_it_kills(start: Start) -> None:
    supervised = start("obedient", stop_seconds=1)
    supervised.until("healthy after")
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "child was asked to end" in text
    assert "killed=False" in text


def test_a_notice_that_cannot_be_put_up_stops_nothing(start: Start) -> None:
    supervised = start("obedient", announcing="fails")
    supervised.until("healthy after")
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "no notice before the stop" in text
    assert "child was asked to end" in text
    assert "killed=False" in text


def test_the_child_is_obeyed_while_it_starts(start: Start) -> None:
    supervised = start("silent")
    supervised.until("silent ready")
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "stopped_by=<Signals.SIGTERM" in text
    assert "killed=False" in text
    assert "notice is up" not in text, "nobody is served yet"


def test_a_child_that_ends_by_itself_is_told_from_one_that_was_stopped(start: Start) -> None:
    assert "Outcome(status=3, stopped_by=None, killed=False, late=False)" in start("exits").finish()


def test_a_killed_child_is_told_by_its_signal(start: Start) -> None:
    supervised = start("obedient")
    supervised.until("healthy after")
    os.kill(supervised.ids[0], signal.SIGKILL)
    assert "Outcome(status=-9, stopped_by=None, killed=False" in supervised.finish()


def test_the_limit_kills_a_child_that_ignores_the_stop(start: Start) -> None:
    supervised = start("stubborn", stop_seconds=0.3)
    supervised.until("healthy after")
    supervised.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    assert "Outcome(status=-9, stopped_by=<Signals.SIGTERM: 15>, killed=True" in supervised.finish()
    assert time.monotonic() - begin < 10
    assert _all_gone(supervised.ids)


def test_a_second_interrupt_does_not_wait_for_the_limit(start: Start) -> None:
    supervised = start("stubborn", stop_seconds=600)
    supervised.until("healthy after")
    supervised.process.send_signal(signal.SIGINT)
    supervised.until("stopping on SIGINT")
    supervised.process.send_signal(signal.SIGINT)
    assert "killed=True" in supervised.finish()
    assert _all_gone(supervised.ids)


def test_the_start_limit_ends_a_child_that_never_answers(start: Start) -> None:
    supervised = start("silent", start_seconds=0.5)
    # The child holds the same output, so its end of file is the child's end too.
    assert "killed=True, late=True" in supervised.finish()


def test_the_whole_group_ends_with_its_leader(start: Start) -> None:
    supervised = start("parent")
    for text in ("parent ready", "grandchild ready", "healthy after"):
        supervised.until(text)
    leader = next(line for line in supervised.lines if line.startswith("parent ready")).split()[2]
    os.kill(int(leader), signal.SIGKILL)
    supervised.finish()
    assert len(supervised.ids) >= 2
    assert _all_gone(supervised.ids)


def test_nothing_outlives_a_killed_supervisor(start: Start) -> None:
    supervised = start("obedient")
    supervised.until("healthy after")
    supervised.process.kill()
    assert _all_gone(supervised.ids)
