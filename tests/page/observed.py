"""`python -m tests.page.observed [SECONDS CHARACTERS]`: the chat page as it is, which tells what it holds at SIGUSR1.

It counts what the interpreter holds, not what Chainlit lists. The two are the bounds for browsers that do not read.
Engine.IO asks often whether a connection lives: until it would ask next, it remembers one that has gone.
"""

import asyncio
import collections
import gc
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import engineio
from chat_ui import slow_readers
from chat_ui.__main__ import main

KINDS = ("WebsocketSession", "PageState", "Message", "Outbox", "BrowserSocket")
HEARTBEAT_SECONDS = 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def tell(_signal: int, _frame: FrameType | None) -> None:
    """Print one line of JSON: how many objects of each kind there are, tasks that run, files, and memory in use."""
    gc.collect()
    # `type`, not `isinstance`: there are proxies that look their object up when they are asked what they are.
    things = gc.get_objects()
    kinds = collections.Counter(type(thing).__name__ for thing in things)
    held = {kind: kinds[kind] for kind in KINDS}
    held["tasks"] = sum(type(thing) is asyncio.Task and not thing.done() for thing in things)
    held["files"] = len(list(Path("/proc/self/fd").iterdir()))
    held["bytes"] = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    sys.stdout.write("held " + json.dumps(held) + "\n")
    sys.stdout.flush()


class Server(engineio.AsyncServer):
    """Engine.IO with a quick heartbeat."""

    def __init__(self, **options: object) -> None:
        super().__init__(**{**options, "ping_interval": HEARTBEAT_SECONDS})


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    engineio.AsyncServer = Server
    if bounds := sys.argv[1:]:
        slow_readers.LOOK_SECONDS = float(bounds[0])
        slow_readers.MAX_WAITING_CHARACTERS = int(bounds[1])
    sys.exit(main([]))
