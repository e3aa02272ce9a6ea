"""The launcher as a process of its own in vLLM's environment, and a hub that is this machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import hubs
from tests.fakes.hubs import Hub

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-vllm/bin/python"
DEMO = ROOT / "models/demo"
START_SECONDS = 240


def environment(**settings: str) -> dict[str, str]:
    """This process's environment with exactly these of the launcher's settings, and no hub of its own."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ENGINE_", "HF_"))}
    return {**kept, **settings}


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def run_launcher(command: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run one of the launcher's short commands to its end."""
    return subprocess.run(
        [PYTHON, "-m", "launcher", command, *options],
        env=environment(**{"ENGINE_PORT": str(free_port()), **settings}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def processes_of_group(group: int) -> dict[int, str]:
    """Living processes of a process group with their names."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, member_of = rest.split()[:3]
        if int(member_of) == group and state != "Z":
            found[int(entry.name)] = title or name
    return found


class Engine:
    """A launcher that serves, with its log."""

    def __init__(self, log: Path, **settings: str) -> None:
        self.port = free_port()
        self.status_port = free_port()
        self.log = log
        # What the launcher leaves behind lies beside the log; vLLM's own caches stay where they are warm.
        self.cache = log.parent / "cache"
        caches = {"ENGINE_CACHE_DIR": str(self.cache), "VLLM_CACHE_ROOT": str(Path.home() / ".cache/vllm")}
        ports = {"ENGINE_PORT": str(self.port), "ENGINE_STATUS_PORT": str(self.status_port)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "launcher"],
                env=environment(**{**caches, **ports, **settings}),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.url = f"http://127.0.0.1:{self.port}"
        self.group = 0

    def wait_until_healthy(self, sign: str = "engine 1: healthy after") -> None:
        """Return once the launcher says so; fail if it ends before."""
        deadline = time.monotonic() + START_SECONDS
        while sign not in self.text:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.1)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.group = next(int(child) for child in children if processes_of_group(int(child)).keys() - {int(child)})

    @property
    def text(self) -> str:
        """All that launcher and vLLM have printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def status(self) -> dict[str, Any]:
        """What the launcher says of itself."""
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.status_port}/status", timeout=5).json()
        return found

    def last_words(self) -> dict[str, Any]:
        """The one file that an abnormal end has left."""
        [path] = (self.cache / "last-words").glob("*.json")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def core(self) -> int:
        """The process that computes."""
        return next(pid for pid, title in processes_of_group(self.group).items() if "EngineCore" in title)

    def nothing_left(self, seconds: float) -> bool:
        """Whether all of vLLM's processes are gone within so many seconds."""
        deadline = time.monotonic() + seconds
        while processes_of_group(self.group):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def chat(self, question: str, **options: Any) -> dict[str, Any]:
        """One answer, greedy."""
        answer = httpx.post(
            f"{self.url}/v1/chat/completions",
            json={
                "model": "ernie-demo",
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": 64,
                **options,
            },
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.process.kill()
        self.process.wait()
        for pid in processes_of_group(self.group) if self.group else ():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Start the demo model with these settings, and wait until it is healthy."""
    with contextlib.ExitStack() as stack:

        def begin(**settings: str) -> Engine:
            started = Engine(tmp_path / "engine.log", ENGINE_MODEL="demo", **settings)
            stack.callback(started.end)
            started.wait_until_healthy()
            return started

        yield begin


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """The demo model, healthy."""
    started = Engine(tmp_path / "engine.log", ENGINE_MODEL="demo")
    try:
        started.wait_until_healthy()
        yield started
    finally:
        started.end()


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Hugging Face with the demo model."""
    with hubs.huggingface(hubs.files_of(DEMO)) as running:
        yield running


@pytest.fixture
def modelscope() -> Iterator[Hub]:
    """ModelScope with the demo model."""
    with hubs.modelscope(hubs.files_of(DEMO)) as running:
        yield running
