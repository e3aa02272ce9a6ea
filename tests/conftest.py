"""The real stack for the tests: the same command that a user calls, on free ports, with the demo model."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from ops.settings import PREFIXES
from ops.supervision import PORTS

# How long an example takes says nothing on a busy machine.
settings.register_profile("default", settings.get_profile("default"), deadline=None)
ROOT = Path(__file__).resolve().parent.parent
UP_TIMEOUT_SECONDS = 300
STAND_INS = ROOT.parent / "shared" / "docker"  # an engine and base images, on machines that reach no registry


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a shell lets what it runs in the background ignore it, children too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Stack:
    """A running stack: the edge's address, each service's own port, and where its logs lie."""

    url: str
    ports: dict[str, int]
    run_dir: Path
    environment: dict[str, str]
    output: str


def free_ports(names: list[str]) -> dict[str, int]:
    """Return a free port for each name; all are held until the last is chosen, so no two agree."""
    sockets = {name: socket.socket() for name in names}
    try:
        for held in sockets.values():
            held.bind(("127.0.0.1", 0))
        return {name: held.getsockname()[1] for name, held in sockets.items()}
    finally:
        for held in sockets.values():
            held.close()


def clean_environment(**settings: str) -> dict[str, str]:
    """Return this process's environment with exactly these of the project's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)} | settings


def run_ops(
    *arguments: str, environment: dict[str, str], timeout_seconds: float = UP_TIMEOUT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Call the operator's command as `make` does."""
    return subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "ops", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The four services as plain processes, brought up by `ops up --demo` and taken down by `ops down`."""
    ports = free_ports(list(PORTS))
    run_dir = tmp_path_factory.mktemp("run")
    # All tests are one client, and ask more often than any may.
    limits = ("GATEWAY_RATE_LIMIT_REQUESTS", "GATEWAY_RATE_LIMIT_TOKENS", "NGINX_RATE_LIMIT_REQUESTS")
    unlimited = dict.fromkeys((*limits, "GATEWAY_MAX_STREAMS_PER_CLIENT", "NGINX_MAX_CONNECTIONS_PER_CLIENT"), "off")
    environment = clean_environment(
        STACK_WAY="native",
        STACK_RUN_DIR=str(run_dir),
        **unlimited,
        **{name: str(port) for name, port in ports.items()},
    )
    up = run_ops("up", "--demo", environment=environment)
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        yield Stack(f"http://127.0.0.1:{ports['NGINX_HTTP_PORT']}", ports, run_dir, environment, up.stdout)
    finally:
        down = run_ops("down", environment=environment)
    assert down.returncode == 0, down.stdout + down.stderr


@pytest.fixture(scope="session")
def questions() -> list[dict[str, Any]]:
    """What the demo model was trained to answer, word for word."""
    lines = (ROOT / "models/demo/questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """A Docker engine with compose; a machine without one cannot run these tests."""
    if (STAND_INS / "engine.sh").exists():
        subprocess.run(["bash", STAND_INS / "engine.sh"], check=True, timeout=300)
        names = [
            *("debian", "python", "nginx130", "vllm=vllm/vllm-openai-cpu:v0.33.0-x86_64"),
            *("valkey=valkey/valkey:9-alpine", "prometheus=prom/prometheus:v3.14.0"),
        ]
        subprocess.run(["bash", STAND_INS / "base-images.sh", *names], check=True, timeout=900)
    answers = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    if not answers and os.environ.get("CI"):
        pytest.fail("CI must have a Docker engine: the container tests may not be left out there")
    if not answers:
        # A laptop without Docker can still run the rest; the summary names what was left out.
        pytest.skip("no Docker engine answers on this machine")
