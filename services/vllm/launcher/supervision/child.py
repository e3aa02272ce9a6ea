"""One child process and its group, from the start to its certain end; signals go to it as it can take them.

It works in a container's first process: whatever is left to that is reaped, and no member of a group stays behind.
"""

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import IO

from launcher.command import Command
from launcher.supervision import guard

# Helpers of an ended server (its shared-memory tracker) clean up on their own within this time.
_STRAGGLERS_SECONDS = 2.0
_STEP_SECONDS = 0.05
# A process that waits for a lost card inside the driver does not even end when it is killed.
_KILL_SECONDS = 10.0
# A core file of this size is refused even where the kernel hands cores to a program, which 0 would not stop.
_NO_CORE = 1

log = logging.getLogger(__name__)


class Child:
    """A process that leads a group of its own, and the guard that ends the group if this process cannot."""

    def __init__(self, command: Command, *, piped: bool = False) -> None:
        """Start it; `piped` gives its output to `streams` instead of letting it write to the launcher's own."""
        self._guard = None if os.getpid() == 1 else _start_guard()
        pipe = subprocess.PIPE if piped else None
        self._process = subprocess.Popen(
            command.argv,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            process_group=0,
        )
        self.group = self._process.pid
        self._tell_guard(self.group)

    @property
    def streams(self) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        """Its standard output and standard error, if they are piped."""
        return self._process.stdout, self._process.stderr

    def poll(self) -> int | None:
        """Exit code if it has ended, negative for a signal."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Only the leader is asked: vLLM's processes end in an order of its own."""
        self._process.send_signal(signal.SIGTERM)

    def abort(self, seconds: float) -> None:
        """Let every process of the group say where it stands and end (PYTHONFAULTHANDLER), at most so many seconds."""
        for pid in guard.members(self.group):
            try:
                resource.prlimit(pid, resource.RLIMIT_CORE, (_NO_CORE, _NO_CORE))
            except (ProcessLookupError, PermissionError):
                continue
        guard.signal_group(self.group, signal.SIGABRT)
        guard.signal_group(self.group, signal.SIGCONT)
        deadline = time.monotonic() + seconds
        while guard.members(self.group) and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(_STEP_SECONDS)

    def kill(self) -> int:
        """Kill the whole group and return the leader's status; it is given up if it does not end within 10 s."""
        guard.signal_group(self.group, signal.SIGKILL)
        try:
            return self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            log.error("process %d does not end although it was killed: the driver holds it", self.group)  # noqa: TRY400
            return -signal.SIGKILL

    def end_group(self) -> None:
        """Make sure that nothing of the group is left."""
        if self._process.poll() is None:
            self.kill()
        deadline = time.monotonic() + _STRAGGLERS_SECONDS
        while guard.group_exists(self.group):
            if time.monotonic() > deadline:
                guard.signal_group(self.group, signal.SIGKILL)
                break
            time.sleep(_STEP_SECONDS)
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


def reap_orphans(own: Collection[int]) -> None:
    """As process 1: collect the ended processes that were handed to this one, except these, which are polled."""
    while os.getpid() == 1:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in own:
            return
        os.waitpid(found.si_pid, 0)


def _start_guard() -> subprocess.Popen[bytes]:
    # Its own session, so that neither a terminal's Ctrl-C nor a killed group takes the guard along.
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(guard.__file__).resolve())],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _reap_group(group: int) -> None:
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
