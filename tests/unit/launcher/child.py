"""A server in miniature for the supervisor's tests: `child.py KIND PORT`, standard library only.

Kinds: `obedient` answers /health and ends on SIGTERM; `stubborn` ignores SIGTERM; `silent` never answers;
`exits` ends with code 3; `parent` is obedient and has a child of its own that ignores SIGTERM.
It prints `ready` and the ids of its processes when it is.
"""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time


class Health(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def obey(number: int, _frame: object) -> None:
    """Say that the end was asked for, and end by the signal."""
    os.write(1, b"child was asked to end\n")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(kind: str, port: int) -> None:
    """Be the kind of server that a test needs."""
    if kind == "exits":
        sys.exit(3)
    ids = [os.getpid()]
    if kind in {"stubborn", "grandchild"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "obedient":
        signal.signal(signal.SIGTERM, obey)
    if kind == "parent":
        ids.append(subprocess.Popen([sys.executable, __file__, "grandchild", "0"]).pid)
    if kind in {"obedient", "stubborn", "parent"}:
        server = http.server.HTTPServer(("127.0.0.1", port), Health)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{kind} ready {' '.join(map(str, ids))}\n")
    sys.stdout.flush()
    while True:
        time.sleep(60)


main(sys.argv[1], int(sys.argv[2]))
