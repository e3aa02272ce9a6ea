"""One child process group, from its start to its certain end, with this process's signals passed on.

It works as a container's first process: it reaps whatever is left to it, and it never leaves the group behind.
"""

import http.client
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from launcher import guard
from launcher.command import Command

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Helpers of an ended server (its shared-memory tracker) clean up on their own within this time.
_STRAGGLERS_SECONDS = 2.0
_POLL_SECONDS = 0.25
# Between the notice and SIGTERM: who was let in just before it is tokenized and queued by then.
_NOTICE_SECONDS = 1.0
_PROBE_TIMEOUT_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Longest start, from the first instruction to healthy, and longest stop, in seconds."""

    start_seconds: float
    stop_seconds: float


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    `status` is its exit code, negative for a signal; `killed` says that a limit was passed, `late` that it was the
    start's; `stopped_by` is the signal that asked for the end, None if the child ended by itself.
    """

    status: int
    stopped_by: signal.Signals | None = None
    killed: bool = False
    late: bool = False


class Inbox:
    """The signals of this process, to be waited for instead of interrupting; the previous handlers come back."""

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._previous = {number: signal.signal(number, _noted) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        self._previous_descriptor = signal.set_wakeup_fd(self._writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float | None) -> list[signal.Signals]:
        """Signals that came, as soon as there is one; an empty list after so many seconds (None: no limit)."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        return [signal.Signals(number) for number in os.read(self._reader, 4096)] if ready else []


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Only the wake-up descriptor matters; a handler must exist for it to be written."""


def run(
    command: Command,
    inbox: Inbox,
    limits: Limits,
    health: tuple[str, int] | None = None,
    before_stop: Callable[[], None] | None = None,
) -> Outcome:
    """Run a command to its end, which is the end of its whole process group.

    `health` is the host and port whose /health tells that the start is over; without it there is no start limit.
    A stop signal is passed on as SIGTERM; a second SIGINT, or the stop limit, kills the group. A healthy server is told
    `before_stop`, and gets SIGTERM a second later.
    """
    child = _Child(command)
    try:
        return _supervise(child, inbox, limits, health, before_stop)
    finally:
        child.end_group()


def healthy(host: str, port: int, timeout_seconds: float = _PROBE_TIMEOUT_SECONDS) -> bool:
    """Whether the server answers its health check with 200; never by way of a proxy."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Child:
    """A process that leads a group of its own, and the guard that ends the group if this process cannot."""

    def __init__(self, command: Command) -> None:
        self._guard = None if os.getpid() == 1 else _start_guard()
        self._process = subprocess.Popen(
            command.argv, env=command.environment, stdin=subprocess.DEVNULL, process_group=0
        )
        self.group = self._process.pid
        self._tell_guard(self.group)

    def poll(self) -> int | None:
        """Exit code if it has ended; as process 1 also reaps orphans that were handed to it."""
        status = self._process.poll()
        if os.getpid() == 1:
            _reap_orphans(self._process.pid)
        return status

    def ask_to_end(self) -> None:
        """Only the leader is asked: vLLM's processes end in an order of its own."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> int:
        """Kill the whole group and return the leader's status."""
        guard.signal_group(self.group, signal.SIGKILL)
        return self._process.wait()

    def end_group(self) -> None:
        """Make sure that nothing of the group is left."""
        if self._process.poll() is None:
            self.kill()
        deadline = time.monotonic() + _STRAGGLERS_SECONDS
        while guard.group_exists(self.group):
            if time.monotonic() > deadline:
                guard.signal_group(self.group, signal.SIGKILL)
                break
            time.sleep(_POLL_SECONDS / 5)
            _reap_group(self.group)
        self._tell_guard(0)
        if self._guard:
            self._guard.communicate()

    def _tell_guard(self, group: int) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        try:
            self._guard.stdin.write(f"{group}\n".encode())
            self._guard.stdin.flush()
        except BrokenPipeError:
            log.warning("the guard process is gone: kill -9 of the launcher would leave the engine behind")


def _start_guard() -> subprocess.Popen[bytes]:
    # Its own session, so that neither a terminal's Ctrl-C nor a killed group takes the guard along.
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(guard.__file__).resolve())],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _reap_orphans(own: int) -> None:
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == own:
            return
        os.waitpid(found.si_pid, 0)


def _reap_group(group: int) -> None:
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _supervise(
    child: _Child,
    inbox: Inbox,
    limits: Limits,
    health: tuple[str, int] | None,
    before_stop: Callable[[], None] | None,
) -> Outcome:
    started = time.monotonic()
    starting = health is not None
    while True:
        received = inbox.wait(_POLL_SECONDS if starting else None)
        status = child.poll()
        stop = next((number for number in received if number in STOP_SIGNALS), None)
        if status is not None:
            return Outcome(status, stop)
        if stop is not None:
            return _stop(child, inbox, limits, stop, None if starting else before_stop)
        elapsed = time.monotonic() - started
        if starting and health and healthy(*health):
            starting = False
            log.info("healthy after %.1f s", elapsed)
        elif starting and elapsed > limits.start_seconds:
            return Outcome(child.kill(), killed=True, late=True)


def _stop(
    child: _Child, inbox: Inbox, limits: Limits, stop: signal.Signals, before_stop: Callable[[], None] | None
) -> Outcome:
    log.info("stopping on %s, within %.0f s", stop.name, limits.stop_seconds)
    deadline = time.monotonic() + limits.stop_seconds
    ask_at = time.monotonic()
    if before_stop is not None:
        try:
            before_stop()
        except OSError:
            log.exception("no notice before the stop; requests of the last second may fail")
        ask_at += min(_NOTICE_SECONDS, limits.stop_seconds / 2)
    asked = False
    while (left := deadline - time.monotonic()) > 0:
        until_asked = ask_at - time.monotonic()
        if not asked and until_asked <= 0:
            child.ask_to_end()
            asked = True
        status = child.poll()
        if status is not None:
            return Outcome(status, stop)
        if signal.SIGINT in inbox.wait(left if asked else min(left, until_asked)):
            log.warning("second SIGINT")
            break
    return Outcome(child.kill(), stop, killed=True)
