"""A launcher with its engines, and a gateway before them, as processes of ours."""

import contextlib
import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engine import result
from bench.engine.engines import Engine, ask

MODEL = "ernie-4.5-0.3b-pt"
PORT, STATUS_PORT, GATEWAY_PORT = 18000, 18090, 18080
LOGS = Path(tempfile.gettempdir()) / "launched-logs"
STOP_SECONDS = 60.0
_START_SECONDS = 300.0
_STEP_SECONDS = 0.1
_STAGE_TIME = re.compile(r"launcher: ((?:engine \d+: )?\w+ took [\d.]+ s.*)")


class Launcher:
    """A running launcher, and the engines below it."""

    def __init__(self, pid: int, status_port: int = STATUS_PORT) -> None:
        self.pid, self._status_port = pid, status_port

    def status(self) -> dict[str, Any]:
        """What the launcher says of itself; empty while it says nothing."""
        with contextlib.suppress(ValueError):
            code, body = ask(self._status_port, "/status", 1.0)
            if code == http.client.OK:
                found: dict[str, Any] = json.loads(body)
                return found
        return {}

    def engines(self) -> list["Served"]:
        """Its engines, as the load wants them."""
        return [Served(engine["port"], self.pid) for engine in self.status().get("engines", [])]


def running(status_port: int) -> Launcher | None:
    """Return the launcher that was left running, by us or by others in a session of its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"launcher\0serve" in (entry / "cmdline").read_bytes() and os.getsid(int(entry.name)) == int(entry.name):
                launcher = Launcher(int(entry.name), status_port)
                if launcher.status():
                    return launcher
    return None


class Launched(Launcher):
    """A launcher of ours with its engines."""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self.log = LOGS / f"{name}.log"
        self.began = time.monotonic()
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "launcher", "serve"],
                env={**os.environ, **settings},  # noqa: TID251 - the tool's own
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        super().__init__(self.process.pid, int(settings.get("ENGINE_STATUS_PORT", STATUS_PORT)))

    def wait_until_serving(self) -> list[float]:
        """Return after how many seconds each engine served."""
        served: dict[int, float] = {}
        while time.monotonic() < self.began + _START_SECONDS and self.process.poll() is None:
            engines = self.status().get("engines", [])
            for engine in engines:
                if engine["stage"] == "serving":
                    served.setdefault(engine["port"], result.rounded(time.monotonic() - self.began))
            if engines and len(served) == len(engines):
                return list(served.values())
            time.sleep(_STEP_SECONDS)
        raise RuntimeError(f"not serving: {self.status()}; {self.last_lines(12)}")

    def last_lines(self, count: int) -> list[str]:
        """The end of its log, without paths."""
        return [result.without_paths(line) for line in self.log.read_text(errors="replace").splitlines()[-count:]]

    def stages(self) -> list[str]:
        """The launcher's own lines about its stages."""
        return [result.without_paths(line) for line in _STAGE_TIME.findall(self.log.read_text(errors="replace"))]

    def stop(self) -> tuple[int, float]:
        """Ask it to end, by force at last; its exit code, and how long that took."""
        began = time.monotonic()
        self.process.terminate()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return code, result.rounded(time.monotonic() - began)


class Served(Engine):
    """A running engine of a launcher; all of them are of the launcher's session."""

    def __init__(self, port: int, session: int) -> None:
        self.port, self._session = port, session

    def members(self) -> dict[int, str]:
        """The processes of this engine: the tree below the launcher's child that has its port in its arguments."""
        found, parents = {}, {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError):
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(rest[3]) == self._session and rest[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                    parents[int(entry.name)] = int(rest[1])
        mine = {pid for pid, title in found.items() if f"--port {self.port}" in title and parents[pid] == self._session}
        while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
            mine |= more
        return {pid: found[pid] for pid in mine}


class Gateway(Engine):
    """The gateway, as one more server for the load."""

    def __init__(self, command: str) -> None:
        self.port = GATEWAY_PORT
        with (LOGS / "gateway.log").open("wb") as output:
            self.process = subprocess.Popen(shlex.split(command), stdout=output, stderr=subprocess.STDOUT)

    def members(self) -> dict[int, str]:
        """Itself."""
        return {self.process.pid: "gateway"}

    def wait_until_ready(self, seconds: float) -> float:
        """Return after how many seconds /readyz was 200."""
        began = time.monotonic()
        while ask(self.port, "/readyz", 2.0)[0] != http.client.OK:
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"the gateway is not ready: {ask(self.port, '/readyz?verbose', 2.0)[1][:600]!r}")
            time.sleep(_STEP_SECONDS)
        return result.rounded(time.monotonic() - began)
