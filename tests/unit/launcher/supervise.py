"""Supervise copies of child.py in a process of its own: `supervise.py JSON`, the JSON as in test_fleet.Supervised.

Prints the outcome in lines and ends with 0, however the children ended.
"""

import json
import logging
import os
import sys
from pathlib import Path

from launcher.command import Command
from launcher.supervision.board import Board
from launcher.supervision.engine import Unit
from launcher.supervision.fleet import Fleet, Limits, Watches
from launcher.supervision.inbox import Inbox
from launcher.supervision.status import StatusServer

how = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")


def unit(number: int, kind: str, port: int) -> Unit:
    """One child as an engine."""
    argv = (sys.executable, str(Path(__file__).with_name("child.py")), kind, str(port))
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    return Unit(f"engine {number}", Command(argv, environment), "127.0.0.1", port)


def announce() -> None:
    """Stand for what a launcher does before it stops a server."""
    if how["announcing"] == "fails":
        raise OSError("no space left")
    sys.stdout.write("notice is up\n")
    sys.stdout.flush()


units = [
    unit(number, kind, port) for number, (kind, port) in enumerate(zip(how["kinds"], how["ports"], strict=True), 1)
]
limits = Limits(how["start_seconds"], how["stop_seconds"], how["notice_seconds"])
watches = Watches("demo", how["stall_seconds"], cards=["0"] if how["cards"] else None)
board = Board("demo")
with Inbox() as inbox, StatusServer(board, "127.0.0.1", how["status_port"]):
    outcome = Fleet(units, inbox, board, limits, watches, before_stop=announce).run()
sys.stdout.write(f"{outcome.cause}\nkilled={outcome.killed}\nscene: {outcome.scene}\n")
sys.stdout.write(f"lines: {json.dumps(outcome.lines)}\nnotes: {outcome.card_notes}\n")
sys.stdout.write(f"stages: {[str(engine.stage) for engine in board.engines]}\n")
