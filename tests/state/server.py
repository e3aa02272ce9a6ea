"""A real Valkey of the test's own, or Redis where there is no Valkey; it can be slowed down and taken away."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

START_SECONDS = 10
PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


class Server:
    """One server process, on a free port of 127.0.0.1, that keeps nothing on disk."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What GATEWAY_STATE_URL is to be."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = shutil.which("valkey-server", path=PATH) or shutil.which("redis-server", path=PATH)
        assert program, "neither valkey-server nor redis-server is installed: ops/setup.sh tests"
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen([program, *options], cwd=self._folder, stdout=log, stderr=log)
        ends_at = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < ends_at, (self._folder / "server.log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """Take it away, whatever it is doing."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it take connections and answer nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def command(self, *words: str) -> str:
        """Send one command and return the first line of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall((" ".join(words) + "\r\n").encode())
            return connection.makefile().readline().strip()

    def _answers(self) -> bool:
        try:
            return self.command("PING") == "+PONG"
        except OSError:
            return False
