"""Starts the watcher and the workers, puts others in the place of those that die, and stops them in order."""

import ctypes
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from gateway.workers.shared import Shared

# Run in a process of their own, and return that process's exit code; a worker serves what comes to its socket.
Watch = Callable[[], int]
Work = Callable[[socket.socket], int]
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
# One that has lived so long and dies is replaced at once; of those that die sooner, each later than the one before.
STEADY_SECONDS = 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
FAILED = 1
# prctl(2).
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("gateway.workers")


@dataclass(slots=True)
class _Seat:
    """One row, and the process that has it, if there is one."""

    row: int
    listener: socket.socket | None = None
    pid: int = 0
    started_at: float = 0.0
    early_deaths: int = 0
    due_at: float = 0.0


class Supervisor:
    """Runs `watch` once and `work` in each of the workers, each with what `listen` returns.

    What they still have when `grace_seconds` after a signal are over is cut off.
    """

    def __init__(
        self, shared: Shared, watch: Watch, work: Work, listen: Callable[[], socket.socket], grace_seconds: float
    ) -> None:
        self._shared = shared
        self._watch = watch
        self._work = work
        self._listen = listen
        self._seats = [_Seat(row) for row in range(len(shared.cells))]
        self._grace_seconds = grace_seconds
        self._kills_at: float | None = None
        self._code = 0

    def run(self) -> int:
        """Supervise until a signal has stopped all, or one could not start; return the exit code."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while True:
                self._start_due(before)
                if self._kills_at is not None and not self._living:
                    return self._code
                received = signal.sigtimedwait(_SIGNALS, self._patience())
                if received and received.si_signo != signal.SIGCHLD:
                    self._stop(signal.Signals(received.si_signo))
                self._reap()
                self._end_late()
        finally:
            for seat in self._living:
                os.kill(seat.pid, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def _living(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.pid]

    def _patience(self) -> float:
        """Return until when nothing has to be done but what signals ask for."""
        times = [seat.due_at for seat in self._seats if not seat.pid] if self._kills_at is None else [self._kills_at]
        return max(0.0, min(times, default=time.monotonic() + LONGEST_PAUSE_SECONDS) - time.monotonic())

    def _start_due(self, signals: set[int | signal.Signals]) -> None:
        for seat in self._seats:
            if self._kills_at is None and not seat.pid and time.monotonic() >= seat.due_at:
                self._start(seat, signals)

    def _start(self, seat: _Seat, signals: set[int | signal.Signals]) -> None:
        if seat.row != self._shared.watcher_row and not seat.listener:
            # Kept for the next one if this one dies: what waits there to be accepted is not lost.
            seat.listener = self._listen()
        seat.started_at = time.monotonic()
        seat.pid = os.fork()
        if seat.pid:
            return
        for other in self._seats:
            if other is not seat and other.listener:
                other.listener.close()
        listener = seat.listener
        _be(seat.row, self._shared, signals, partial(self._work, listener) if listener else self._watch)

    def _stop(self, received: signal.Signals) -> None:
        """Pass a signal to stop on; the watcher is told when the last worker is gone."""
        if self._kills_at is not None:
            if received == signal.SIGINT:
                for seat in self._living:
                    os.kill(seat.pid, signal.SIGINT)
            return
        self._kills_at = time.monotonic() + self._grace_seconds
        for seat in self._living:
            if seat.row != self._shared.watcher_row or len(self._living) == 1:
                os.kill(seat.pid, signal.SIGTERM)

    def _reap(self) -> None:
        for seat in self._living:
            pid, status = os.waitpid(seat.pid, os.WNOHANG)
            if pid:
                self._bury(seat, os.waitstatus_to_exitcode(status))

    def _bury(self, seat: _Seat, code: int) -> None:
        has_served = self._shared.has_served(seat.row)
        fields = {"worker": seat.row, "pid": seat.pid, "exit_code": code}
        seat.pid = 0
        self._shared.vacate(seat.row)
        if self._kills_at is not None:
            _close(seat)
            # One that was told to stop before it could listen to that has stopped too.
            self._code = self._code or (0 if code in {0, -signal.SIGTERM} else FAILED)
            if [left.row for left in self._living] == [self._shared.watcher_row]:
                os.kill(self._living[0].pid, signal.SIGTERM)
            return
        if code > 0 and not has_served:
            # It has said why; the next one would fail like it.
            self._stop(signal.SIGTERM)
            self._code = code
            return
        early = time.monotonic() - seat.started_at < STEADY_SECONDS
        seat.early_deaths = seat.early_deaths + 1 if early else 0
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (seat.early_deaths - 2), LONGEST_PAUSE_SECONDS)
        pause = pause if seat.early_deaths > 1 else 0.0
        seat.due_at = time.monotonic() + pause
        if pause:
            _close(seat)
        _log.error("process_died", extra={"fields": {**fields, "replaced_in_seconds": pause}})

    def _end_late(self) -> None:
        if self._kills_at is None or time.monotonic() < self._kills_at:
            return
        workers = [seat for seat in self._living if seat.row != self._shared.watcher_row]
        for seat in workers or self._living:
            _log.error("process_cut_off", extra={"fields": {"worker": seat.row, "pid": seat.pid}})
            os.kill(seat.pid, signal.SIGKILL)
        self._kills_at = time.monotonic() + self._grace_seconds


def _close(seat: _Seat) -> None:
    """Let connections go to the others."""
    if seat.listener:
        seat.listener.close()
        seat.listener = None


def _be(row: int, shared: Shared, signals: set[int | signal.Signals], role: Callable[[], int]) -> NoReturn:
    """Become the process of a row."""
    code = FAILED
    try:
        # A terminal's Ctrl-C is for the supervisor alone.
        os.setpgid(0, 0)
        _end_with(shared.parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        shared.cells.sit(row)
        shared.note_pid()
        code = role()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else FAILED
    except BaseException:  # noqa: BLE001  (the process ends here)
        _log.exception("process_failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """Let the system kill this process when the supervisor dies, whatever of."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        os._exit(FAILED)
