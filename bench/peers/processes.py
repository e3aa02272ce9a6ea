"""Processes on their cores: what a system has as a whole, in CPU time and memory."""

import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.peers.install import program
from bench.peers.systems import KEY, Command, Place, System, base_environment

READY_SECONDS, STOP_SECONDS, ANSWER_SECONDS = 120.0, 15.0, 10.0
_TRIAL = json.dumps({"model": "paced", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})


class NotRunningError(Exception):
    """A system did not start, or did not last; the message is the reason in a sentence."""


def cores() -> tuple[set[int], set[int]]:
    """Return the core of the system under test and those of all others."""
    *others, last = sorted(os.sched_getaffinity(0))
    return {last}, set(others) or {last}


@contextmanager
def on_cores(chosen: set[int]) -> Iterator[None]:
    """Let this process run there, and what it starts meanwhile for good."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_ports(number: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody has."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [listener.getsockname()[1] for listener in listeners]


@contextmanager
def running_engine() -> Iterator[tuple[int, int]]:
    """Run the engine; yields its port and its process id."""
    with subprocess.Popen([program("engine")], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise NotRunningError("the engine has no output")
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


@contextmanager
def running_system(
    system: System, programs: Path, engine_port: int, core: set[int]
) -> Iterator[tuple[int, int | None, float]]:
    """Run a system on its core; yields its port, its process id and the seconds to its first answer.

    Raises NotRunningError if it ends or does not answer in time.
    """
    if system.start is None:
        yield engine_port, None, 0.0
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port, spare = free_ports(2)
        place = Place(port, spare, engine_port, Path(folder), programs)
        began, others = time.monotonic(), os.sched_getaffinity(0)
        with on_cores(core), _running(system.start(place), place) as pid, on_cores(others):
            yield port, pid, round(time.monotonic() - began, 1)


@contextmanager
def _running(command: Command, place: Place) -> Iterator[int]:
    """Start a system, wait for its first answer, yield its process id and end it with all that it has started."""
    log = place.folder / "output.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command.arguments,
                cwd=place.folder,
                env=base_environment(place.folder) | command.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise NotRunningError(f"{command.arguments[0]} is not installed here") from None
        try:
            _await_answer(process, place.port, log)
            yield process.pid
        finally:
            _end(process)


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends_at = time.monotonic() + READY_SECONDS
    answer = ""
    while answer != "200":
        if process.poll() is not None or time.monotonic() > ends_at:
            last = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
            state = f"it ended with {process.returncode}" if process.returncode is not None else f"it answers {answer}"
            raise NotRunningError(f"{state}; its last line: {last[:300]}")
        time.sleep(0.1)
        answer = _try(port)


def _try(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    try:
        connection.request("POST", "/v1/chat/completions", _TRIAL, headers)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # What it started and left behind is in its session still.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, itself first."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except FileNotFoundError:
        return [pid]
    return [pid, *(one for child in children for one in tree(child))]


def memory_mib(pids: Sequence[int]) -> float:
    """Return what processes have in memory, pages that they share counted once (PSS), in MiB.

    Raises NotRunningError if one has ended.
    """
    kib = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            raise NotRunningError("it has ended while it was measured") from None
        kib += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024
