"""What the operator's command sees of real containers: state, health, memory limits, figures, and a crash."""

import time
from collections.abc import Callable, Iterator

import pytest

from ops.containers import Containers
from ops.doctor.diagnosis import diagnose
from ops.doctor.signature import Source
from ops.doctor.signatures import ALL
from ops.settings import Settings
from tests.compose.conftest import docker
from tests.conftest import ROOT

pytestmark = pytest.mark.compose

PROJECT = "ernie-serving-view"
IMAGE = "python:3.13-slim"
SECONDS = 60


@pytest.fixture
def start(docker_engine: None) -> Iterator[Callable[..., str]]:
    """Start containers that compose could have started, and remove them at the end."""
    started: list[str] = []

    def run(service: str, *words: str, options: tuple[str, ...] = ()) -> str:
        name = f"{PROJECT}-{service}-{len(started) + 1}"
        started.append(name)
        labels = (f"com.docker.compose.project={PROJECT}", f"com.docker.compose.service={service}")
        label = [word for text in labels for word in ("--label", text)]
        docker("run", "--detach", "--name", name, *label, *options, IMAGE, *words)
        return name

    yield run
    if started:
        docker("rm", "--force", *started)


@pytest.fixture
def way() -> Containers:
    environment = {"COMPOSE_PROJECT_NAME": PROJECT, "PATH": "/usr/bin:/bin"}
    return Containers(Settings(ROOT, ROOT / ".run", "docker", 1, environment), gpu=True)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_two_engines_are_shown_and_a_killed_one_comes_back(start: Callable[..., str], way: Containers) -> None:
    script = "sleep 1000 & wait; exit 8"
    for _ in range(2):
        start("vllm", "sh", "-c", script, options=("--restart", "unless-stopped"))
    start("gateway", "python", "-m", "http.server", "8001", options=("--read-only", "--cap-drop", "ALL"))
    until(lambda: way.fetch("gateway", "/") is not None)
    assert way.states()["vllm"].word.startswith("0 of 2 healthy")
    assert "Error response" in (way.fetch("gateway", "/nothing") or "")
    before = way.usage()
    assert before["gateway"].memory_bytes > 5 * 10**6
    assert before["gateway"].handles >= 4
    assert before["vllm"].started_at.count(",") == 1
    assert way.uses_card() is False
    way.kill_engine()
    until(lambda: way.usage().get("vllm", before["vllm"]).started_at not in ("", before["vllm"].started_at))
    until(lambda: any("restarts 1" in note for note in way.notes()))


def test_a_container_that_reached_its_memory_limit_is_named(start: Callable[..., str], way: Containers) -> None:
    start("chat-ui", "python", "-c", "bytearray(10**9)", options=("--memory", "20m", "--memory-swap", "20m"))
    until(lambda: any("exited" in note for note in way.notes()))
    [finding] = diagnose({Source.STATES: way.notes()}, ALL, answers=False)
    assert finding.signature.id == "container-memory-limit"
    assert "chat-ui" in finding.cause
