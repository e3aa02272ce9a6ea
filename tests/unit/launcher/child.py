"""A server in miniature for the supervision's tests: `child.py KIND PORT`, standard library only.

Kinds: `obedient` answers /health and ends on SIGTERM; `stubborn` ignores SIGTERM; `silent` never answers;
`exits` ends with code 3; `parent` is obedient and has a child of its own that ignores SIGTERM; `hangs` is obedient,
says that a request runs, and answers none; `busy` answers none either, but its counters move; `finishing` is obedient
and says that a request runs until its figures have been read three times; `slow` tells its figures too late until then.
It prints `ready` and the ids of its processes when it is.
"""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time

METRICS = 'vllm:num_requests_running{{engine="0"}} {}.0\nvllm:generation_tokens_total{{engine="0"}} {}.0\n'


class Health(http.server.BaseHTTPRequestHandler):
    """Answers 200 to all, but a `hangs` or `busy` one no POST before its client has gone."""

    tokens = 0
    kind = ""
    looks_left = 3

    def has_work(self) -> bool:
        """Whether a request runs."""
        if self.kind not in {"finishing", "slow"}:
            return self.kind in {"hangs", "busy"}
        type(self).looks_left -= 1
        if not self.looks_left:
            os.write(1, b"the last answer is complete\n")
        if self.kind == "slow" and self.looks_left > 0:
            time.sleep(1.5)
        return self.looks_left > 0

    def do_GET(self) -> None:
        """Answer."""
        if self.kind == "busy":
            type(self).tokens += 1
        self.send_response(200)
        self.end_headers()
        if self.path == "/metrics":
            self.wfile.write(METRICS.format(int(self.has_work()), self.tokens).encode())

    def do_POST(self) -> None:
        """Say that it was asked, and answer or hang."""
        os.write(1, b"asked for a token\n")
        if self.kind not in {"hangs", "busy"}:
            self.send_response(200)
            self.end_headers()
            return
        while self.connection.recv(65536):
            pass

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
        sys.stderr.write("ValueError: what went wrong\n")
        sys.exit(3)
    ids = [os.getpid()]
    if kind in {"stubborn", "grandchild"}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind in {"obedient", "hangs", "busy", "finishing", "slow"}:
        signal.signal(signal.SIGTERM, obey)
    if kind == "parent":
        ids.append(subprocess.Popen([sys.executable, __file__, "grandchild", "0"]).pid)
    if kind not in {"silent", "grandchild"}:
        Health.kind = kind
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Health)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{kind} ready {' '.join(map(str, ids))}\n")
    sys.stdout.flush()
    while True:
        time.sleep(60)


main(sys.argv[1], int(sys.argv[2]))
