"""A short command of the launcher's own, run to its end while stop signals are obeyed."""

import signal
import time
from dataclasses import dataclass

from launcher.command import Command
from launcher.supervision.child import Child, reap_orphans
from launcher.supervision.inbox import STOP_SIGNALS, Inbox


@dataclass(frozen=True)
class Errand:
    """How it ended: exit code (negative for a signal), and the stop signal that came meanwhile."""

    status: int
    stopped_by: signal.Signals | None = None


def run(command: Command, inbox: Inbox, stop_seconds: float) -> Errand:
    """Run it; a stop signal is passed on as SIGTERM, and after `stop_seconds` its group is killed."""
    child = Child(command)
    stopped_by: signal.Signals | None = None
    deadline: float | None = None
    try:
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return Errand(child.kill(), stopped_by)
            received = inbox.wait(left)
            status = child.poll()
            reap_orphans([child.group])
            stop = next((number for number in received if number in STOP_SIGNALS), None)
            if status is not None:
                return Errand(status, stopped_by or stop)
            if stop is not None and deadline is None:
                stopped_by, deadline = stop, time.monotonic() + stop_seconds
                child.ask_to_end()
    finally:
        child.end_group()
