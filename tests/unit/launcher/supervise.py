"""Supervise child.py in a process of its own: `supervise.py KIND PORT START_SECONDS STOP_SECONDS [fails]`.

Prints the outcome and ends with 0, however the child ended.
"""

import logging
import os
import sys
from pathlib import Path

from launcher.command import Command
from launcher.supervisor import Inbox, Limits, run

kind, port, start_seconds, stop_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
child = Command((sys.executable, str(Path(__file__).with_name("child.py")), kind, str(port)), dict(os.environ))


def announce() -> None:
    """Stand for what a launcher does before it stops a server."""
    if "fails" in sys.argv[5:]:
        raise OSError("no space left")
    sys.stdout.write("notice is up\n")
    sys.stdout.flush()


with Inbox() as inbox:
    outcome = run(child, inbox, Limits(start_seconds, stop_seconds), ("127.0.0.1", port), announce)
sys.stdout.write(f"{outcome}\n")
