"""Ends a process group when the launcher is gone, however it went: `kill -9` leaves no engine behind.

The launcher holds the other end of this process's standard input. It writes the group's id, and 0 when it has ended
the group itself; an end of file before that means that the launcher died. A container needs none of this: there
everything ends with the launcher.
"""

import os
import signal
import sys
import time
from pathlib import Path

_GRACE_SECONDS = 5.0
_STEP_SECONDS = 0.1


def group_exists(group: int) -> bool:
    """Whether any process of the group is left, a zombie included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def members(group: int) -> list[int]:
    """Ids of the group's living processes, without zombies."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, member_of = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(member_of) == group and state != "Z":
            found.append(int(entry.name))
    return sorted(found)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to the whole group, if there is one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def watch() -> None:
    """Wait for the launcher's end, then end its group: first by request, after 5 s by force."""
    group = 0
    for line in sys.stdin:
        group = int(line)
    if not group:
        return
    signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_SECONDS
    while group_exists(group) and time.monotonic() < deadline:
        time.sleep(_STEP_SECONDS)
    signal_group(group, signal.SIGKILL)


if __name__ == "__main__":
    watch()
