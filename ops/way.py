"""What the command needs of a way to run the stack: Docker's containers, or plain processes."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ops.errors import StackError
from ops.stage import Stage

CHECK_TIMEOUT_SECONDS = 180
LAST_LINES = 20
SERVICES = ("vllm", "gateway", "chat-ui", "nginx")


@dataclass(frozen=True)
class Verdict:
    """The launcher's answer to `check`: its exit code, and the line it ended with."""

    code: int
    message: str


@dataclass(frozen=True)
class ServiceState:
    """One service now: a word for people, whether it works, and whether it has given up."""

    word: str
    healthy: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Usage:
    """What all processes of one service hold now; `started_at` changes whenever it starts anew."""

    memory_bytes: int
    handles: int
    threads: int
    started_at: str


class StackWay(Protocol):
    """One way to run the four services. Methods raise `StackError`; none leaves a service half-started."""

    name: str
    is_docker: bool

    def prepare(self) -> None:
        """Make ready what `check` and `start` need: images or environments. Slow the first time only."""

    def is_up(self) -> bool:
        """Tell whether this way runs the stack (or parts of it) now."""

    def check(self) -> Verdict:
        """Ask the launcher, where the engine will run, whether settings, host and weights will do."""

    def start(self, model: str) -> None:
        """Start all four with `model` (empty: the default) and return at once; `states` tells how it goes."""

    def is_starting(self) -> bool:
        """Tell whether `start` is still at work in the background."""

    def states(self) -> dict[str, ServiceState]:
        """Return each service's state now."""

    def stage(self) -> Stage | None:
        """Return what the launcher says of the engine's start; None if it says nothing now. Never raises."""

    def last_words(self, service: str, lines: int = LAST_LINES) -> Sequence[str]:
        """Return the last lines of a service's log."""

    def notes(self) -> Sequence[str]:
        """Return what there is to say of each container or process, a line each: for the doctor and for reports."""

    def fetch(self, service: str, path: str) -> str | None:
        """Return what the gateway or the engine answers within the stack, whatever the status; None if nothing."""

    def launcher(self, command: str) -> Sequence[str]:
        """Return what a command of the launcher prints where the engine runs; nothing if it cannot be asked."""

    def usage(self) -> dict[str, Usage]:
        """Return what each running service holds now."""

    def uses_card(self) -> bool:
        """Tell whether the engine that runs was given a GPU."""

    def kill_engine(self) -> None:
        """Kill the engine as a crash would; its launcher ends then, and is started again by itself."""

    def stop(self) -> None:
        """Stop all four; weights and caches stay."""


def run_check(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Verdict:
    """Run the launcher's `check` and return its verdict; raises `StackError` if none comes in time."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"The launcher's check gave no verdict in {CHECK_TIMEOUT_SECONDS} s; try again.") from None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return Verdict(done.returncode, lines[-1] if lines else "the check said nothing")
