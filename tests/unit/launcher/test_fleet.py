"""The fleet with real processes and real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from launcher.supervision.status import fetch_status

from tests.fakes import nvml

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
SERVICE = HERE.parents[2] / "services" / "vllm"
PATIENCE_SECONDS = 20.0


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    held = [socket.socket() for _ in range(count)]
    for probe in held:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in held]
    for probe in held:
        probe.close()
    return ports


class Supervised:
    """A supervisor process with its children, read line by line."""

    def __init__(self, *kinds: str, environment: Mapping[str, str], **how: Any) -> None:
        self.ports = free_ports(len(kinds))
        limits = {"start_seconds": 15, "stop_seconds": 15, "notice_seconds": 0.2, "stall_seconds": None}
        asked = {
            "kinds": kinds,
            "ports": self.ports,
            "announcing": "works",
            "cards": False,
            "status_port": 0,
            **limits,
            **how,
        }
        self.process = subprocess.Popen(
            [sys.executable, HERE / "supervise.py", json.dumps(asked)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SERVICE), **environment},
        )
        self.lines: list[str] = []
        self.ids: list[int] = []

    @property
    def output(self) -> IO[str]:
        """What the supervisor and its children print."""
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

    def until_healthy(self, engine: int = 1) -> None:
        """Read on until an engine serves and all processes of the children are known."""
        self.until(f"engine {engine}: healthy after")
        self.until(" ready ")

    def finish(self) -> str:
        """Wait for the end and return all that was printed."""
        for line in self.output:
            self.note(line)
        assert self.process.wait(PATIENCE_SECONDS) == 0, self.lines
        return "".join(self.lines)

    def note(self, line: str) -> None:
        """Keep a line, and the process ids of a `ready` line."""
        self.lines.append(line)
        if " ready " in line and not line.startswith("lines:"):
            self.ids += [int(word) for word in line.split(" ready ")[1].split()]

    def id_of(self, engine: int) -> int:
        """The first process of an engine, of several."""
        line = next(line for line in self.lines if line.startswith(f"engine {engine}: ") and " ready " in line)
        return int(line.split(" ready ")[1].split()[0])


Start = Callable[..., Supervised]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start supervisors; nothing of theirs outlives the test."""
    started: list[Supervised] = []

    def begin(*kinds: str, environment: Mapping[str, str] = {}, **how: Any) -> Supervised:
        started.append(Supervised(*kinds, environment=environment, **how))
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
    supervised.until_healthy()
    supervised.process.send_signal(number)
    text = supervised.finish()
    assert f"signal=<Signals.{number.name}" in text
    assert "killed=False" in text
    order = ["stopping on", "notice is up", "child was asked to end", "Cause("]
    assert sorted(order, key=text.index) == order
    assert _all_gone(supervised.ids)


def test_a_short_limit_still_asks_before_it_kills(start: Start) -> None:
    supervised = start("obedient", stop_seconds=1, notice_seconds=5)
    supervised.until_healthy()
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "child was asked to end" in text
    assert "killed=False" in text


@pytest.mark.parametrize("kind", ["finishing", "slow"])
def test_running_answers_are_completed_before_an_engine_is_asked_to_end(start: Start, kind: str) -> None:
    # Several HTTP processes of vLLM end at once when they are asked, with what they were sending.
    supervised = start(kind, "obedient")
    for number in (1, 2):
        supervised.until_healthy(number)
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    order = ["notice is up", "the last answer is complete", "child was asked to end", "Cause("]
    assert sorted(order, key=text.index) == order
    assert "killed=False" in text


def test_an_answer_that_takes_longer_than_the_limit_does_not_hold_up_the_stop(start: Start) -> None:
    supervised = start("busy", stop_seconds=1)
    supervised.until_healthy()
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "child was asked to end" in text
    assert "killed=False" in text


def test_a_notice_that_cannot_be_put_up_stops_nothing(start: Start) -> None:
    supervised = start("obedient", announcing="fails")
    supervised.until_healthy()
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
    assert "signal=<Signals.SIGTERM" in text
    assert "killed=False" in text
    assert "notice is up" not in text, "nobody is served yet"


def test_a_child_that_ends_by_itself_is_told_from_one_that_was_stopped(start: Start) -> None:
    text = start("exits").finish()
    assert "Cause(kind=<Kind.ENDED: 'ended'>, engine=0, status=3, signal=None" in text
    assert 'lines: {"engine 1": ["ValueError: what went wrong"]}' in text


def test_a_killed_child_is_told_by_its_signal(start: Start) -> None:
    supervised = start("obedient")
    supervised.until_healthy()
    os.kill(supervised.ids[0], signal.SIGKILL)
    text = supervised.finish()
    assert "engine=0, status=-9, signal=None" in text
    assert "killed=False" in text


def test_the_limit_kills_a_child_that_ignores_the_stop(start: Start) -> None:
    supervised = start("stubborn", stop_seconds=0.3)
    supervised.until_healthy()
    supervised.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    assert "killed=True" in supervised.finish()
    assert time.monotonic() - begin < 10
    assert _all_gone(supervised.ids)


def test_a_second_interrupt_does_not_wait_for_the_limit(start: Start) -> None:
    supervised = start("stubborn", stop_seconds=600)
    supervised.until_healthy()
    supervised.process.send_signal(signal.SIGINT)
    supervised.until("stopping on SIGINT")
    supervised.process.send_signal(signal.SIGINT)
    assert "killed=True" in supervised.finish()
    assert _all_gone(supervised.ids)


def test_the_start_limit_ends_a_child_that_never_answers(start: Start) -> None:
    supervised = start("silent", start_seconds=0.5)
    text = supervised.finish()
    assert "Cause(kind=<Kind.LATE: 'late'>, engine=0" in text
    assert "stages=('starting',)" in text


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
    supervised = start("obedient", "obedient")
    supervised.until_healthy(2)
    supervised.process.kill()
    assert _all_gone(supervised.ids)
    assert len(supervised.ids) == 2


def test_several_engines_start_one_after_the_other_and_stop_together(start: Start) -> None:
    supervised = start("obedient", "obedient", "obedient")
    supervised.until_healthy(3)
    supervised.until("all 3 engines serve after")
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    # What an engine prints comes through a thread, and may come after what the launcher says of it.
    for number in (1, 2):
        assert text.index(f"engine {number}: healthy") < text.index(f"engine {number + 1}: obedient ready")
    assert text.count("notice is up") == 1
    for number in (1, 2, 3):
        assert text.index("notice is up") < text.index(f"engine {number}: child was asked to end")
    assert "stages: ['ended', 'ended', 'ended']" in text
    assert _all_gone(supervised.ids)


@pytest.mark.parametrize("victim", [1, 2])
def test_the_end_of_one_engine_is_the_end_of_all(start: Start, victim: int) -> None:
    supervised = start("obedient", "obedient")
    supervised.until_healthy(2)
    os.kill(supervised.id_of(victim), signal.SIGKILL)
    text = supervised.finish()
    assert f"kind=<Kind.ENDED: 'ended'>, engine={victim - 1}, status=-9" in text
    assert text.index("notice is up") < text.index(f"engine {3 - victim}: child was asked to end")
    assert _all_gone(supervised.ids)


def test_an_engine_that_cannot_start_ends_those_before_it(start: Start) -> None:
    supervised = start("obedient", "exits", "obedient")
    text = supervised.finish()
    assert "kind=<Kind.ENDED: 'ended'>, engine=1, status=3" in text
    assert "stages=('serving', 'ended', 'waiting')" in text
    assert "engine 1: child was asked to end" in text
    assert "engine 3: obedient" not in text
    assert _all_gone(supervised.ids)


def test_one_that_stands_still_is_found_and_tells_where(start: Start) -> None:
    supervised = start("obedient", "hangs", stall_seconds=1)
    text = supervised.finish()
    assert "kind=<Kind.STALLED: 'stalled'>, engine=1" in text
    assert text.count("engine 2: asked for a token") == 1
    assert "in do_POST" in text, "the stacks of its threads are among its last lines"
    assert "engine 1: child was asked to end" in text
    assert "engine 2: child was asked to end" not in text
    assert "'name': 'python" in text, "its processes were looked at before"
    assert _all_gone(supervised.ids)


def test_one_that_moves_is_left_alone(start: Start) -> None:
    supervised = start("busy", stall_seconds=0.6)
    supervised.until_healthy()
    with pytest.raises(subprocess.TimeoutExpired):
        supervised.process.wait(1.5)
    supervised.process.send_signal(signal.SIGTERM)
    text = supervised.finish()
    assert "Kind.STOPPED" in text
    assert "asked for a token" not in text


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver's library without a card."""
    return nvml.build(tmp_path_factory.mktemp("driver"))


def test_a_fault_of_the_card_ends_all_in_order(start: Start, driver: Path, tmp_path: Path) -> None:
    file = tmp_path / "card"
    nvml.describe(file, nvml.H200)
    supervised = start("obedient", "obedient", cards=True, environment=nvml.environment(driver, file))
    supervised.until_healthy(2)
    nvml.describe(file, nvml.H200, "event=0 8 31")
    supervised.until("Xid 31 on card")
    nvml.describe(file, nvml.H200, "event=0 8 31", "event=0 8 79")
    text = supervised.finish()
    assert "kind=<Kind.CARD: 'card'>" in text
    assert "Xid 79" in text
    assert "fallen off the bus; restart the machine" in text
    assert "stopping on a card fault" in text
    assert text.count("child was asked to end") >= 2
    assert "notes: ['Xid 31" in text
    assert _all_gone(supervised.ids)


def test_errors_that_ecc_could_not_correct_end_all(start: Start, driver: Path, tmp_path: Path) -> None:
    file = tmp_path / "card"
    nvml.describe(file, nvml.H200)
    supervised = start("obedient", cards=True, environment=nvml.environment(driver, file))
    supervised.until_healthy()
    nvml.describe(file, {**nvml.H200, "0.ecc.uncorrected.volatile": "2"})
    assert "2 memory errors of card GPU-77ab12ef" in supervised.finish()


def test_a_card_that_tells_no_events_is_watched_for_memory_errors(start: Start, driver: Path, tmp_path: Path) -> None:
    file = tmp_path / "card"
    silent = {**nvml.H200, "error.nvmlDeviceGetSupportedEventTypes": "3"}
    nvml.describe(file, silent)
    supervised = start("obedient", cards=True, environment=nvml.environment(driver, file))
    supervised.until("only its memory errors are watched")
    nvml.describe(file, {**silent, "0.ecc.uncorrected.volatile": "1"})
    assert "1 memory errors of card GPU-77ab12ef" in supervised.finish()


def test_what_the_card_holds_is_told_at_status(start: Start, driver: Path, tmp_path: Path) -> None:
    file, [port] = tmp_path / "card", free_ports(1)
    nvml.describe(file, nvml.H200)
    environment = nvml.environment(driver, file)
    supervised = start("obedient", cards=True, environment=environment, status_port=port)
    supervised.until_healthy()
    card = {"uuid": nvml.H200["0.uuid"], "name": "NVIDIA H200", "memory_total_bytes": 150754820096}
    _until_cards_are(port, [{**card, "memory_used_bytes": 644874240}])
    nvml.describe(file, {**nvml.H200, "0.free": "754820096"})
    _until_cards_are(port, [{**card, "memory_used_bytes": 150000000000}])
    # A card that does not tell is not shown, and watched all the same.
    nvml.describe(file, {**nvml.H200, "0.error.nvmlDeviceGetMemoryInfo": "999"})
    _until_cards_are(port, [])
    nvml.describe(file, {**nvml.H200, "0.ecc.uncorrected.volatile": "2"})
    assert "2 memory errors of card GPU-77ab12ef" in supervised.finish()


def _until_cards_are(port: int, wanted: list[dict[str, object]]) -> None:
    """Ask until /status says so; the launcher looks once a second."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (told := json.loads(fetch_status("127.0.0.1", port) or "{}").get("cards")) != wanted:
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def test_a_lost_card_ends_all(start: Start, driver: Path, tmp_path: Path) -> None:
    file = tmp_path / "card"
    nvml.describe(file, nvml.H200)
    supervised = start("obedient", cards=True, environment=nvml.environment(driver, file))
    supervised.until_healthy()
    # Only what is asked of the card itself fails when it has fallen off the bus.
    nvml.describe(file, {**nvml.H200, "0.error.nvmlDeviceGetTotalEccErrors": "15"})
    assert "the driver has lost the card" in supervised.finish()


def test_without_a_driver_the_card_is_not_watched(start: Start, tmp_path: Path) -> None:
    supervised = start("obedient", cards=True, environment={"LD_LIBRARY_PATH": str(tmp_path)})
    supervised.until("the card is not watched")
    supervised.until_healthy()
    supervised.process.send_signal(signal.SIGTERM)
    assert "Kind.STOPPED" in supervised.finish()
