"""The supervisor with processes that do nothing but what is tested: who cannot start, who does not stop, who dies."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.process

SCRIPT = """
import logging, os, signal, socket, sys, time
from gateway.logs import configure
from gateway.workers import Shared, Supervisor

shared = Shared(2)
configure("info", lock=shared.log_lock)

def say_that_it_serves():
    fields = {"row": shared.cells.row, "pid": os.getpid()}
    logging.getLogger("test").info("serves", extra={"fields": fields})

def serve(_listener=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    shared.note_serving()
    say_that_it_serves()
    while True:
        time.sleep(60)

def fail(_listener):
    while not shared.has_served(0):
        time.sleep(0.01)
    # Before it is ended with the others, the watcher may not come to say its own.
    logging.getLogger("test").info("fails", extra={"fields": {"pids": list(shared.pids)}})
    sys.exit(3)

def stay(_listener):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    shared.note_serving()
    say_that_it_serves()
    while True:
        time.sleep(60)

listen = lambda: socket.create_server(("127.0.0.1", 0))
sys.exit(Supervisor(shared, serve, WORK, listen, GRACE).run())
"""


def supervised(work: str, grace_seconds: float) -> "subprocess.Popen[str]":
    script = SCRIPT.replace("WORK", work).replace("GRACE", str(grace_seconds))
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT / "services/gateway", stdout=subprocess.PIPE, text=True
    )


def lines(process: "subprocess.Popen[str]", message: str, number: int) -> list[dict[str, object]]:
    """Read on until so many lines say this, and return them."""
    assert process.stdout
    found: list[dict[str, object]] = []
    while len(found) < number:
        line = json.loads(process.stdout.readline())
        found += [line] if line["message"] == message else []
    return found


def test_one_that_cannot_start_ends_all_with_its_code() -> None:
    process = supervised("fail", 30)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    [pids, *_] = [line["pids"] for line in map(json.loads, output.splitlines()) if line["message"] == "fails"]
    assert len(pids) >= 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_one_that_does_not_stop_is_cut_off() -> None:
    process = supervised("stay", 0.3)
    served = lines(process, "serves", 3)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    cut = [json.loads(line) for line in output.splitlines()]
    assert sorted(line["worker"] for line in cut if line["message"] == "process_cut_off") == [1, 2]
    assert not any(Path(f"/proc/{line['pid']}").exists() for line in served)


@pytest.mark.parametrize("row", [0, 1])
def test_one_that_dies_is_replaced_later_each_time(row: int) -> None:
    process = supervised("serve", 30)
    by_row = {line["row"]: line["pid"] for line in lines(process, "serves", 3)}
    pauses = []
    for _ in range(3):
        died_at = time.monotonic()
        subprocess.run(["kill", "-KILL", str(by_row[row])], check=True)
        [line] = lines(process, "process_died", 1)
        assert (line["worker"], line["pid"], line["exit_code"]) == (row, by_row[row], -signal.SIGKILL)
        pauses.append(line["replaced_in_seconds"])
        [line] = lines(process, "serves", 1)
        assert line["row"] == row
        assert time.monotonic() - died_at >= float(str(pauses[-1]))
        by_row[row] = line["pid"]
    assert pauses == [0, 0.5, 1]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
