"""The stack as containers, built from the project's own Dockerfiles and started by the operator's command."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import ROOT, clean_environment, free_ports, run_ops

PROJECT = "ernie-serving-test"
# All compose files of a host without a card, for what is started on top and for taking everything down.
FILES = [word for name in ("", ".cpu", ".tls", ".monitoring") for word in ("--file", f"docker-compose{name}.yml")]


@dataclass(frozen=True)
class Containers:
    """The running containers: the edge's address, the environment of the command that started them, its output."""

    url: str
    environment: dict[str, str]
    output: str


def docker(*arguments: str, **environment: str) -> str:
    """Call the Docker command line in the project's folder; returns what it printed."""
    done = subprocess.run(
        ["docker", *arguments],
        cwd=ROOT,
        # Compose reads the monitoring's file only with a password.
        env=clean_environment(COMPOSE_PROJECT_NAME=PROJECT, STACK_GRAFANA_PASSWORD="unused") | environment,  # noqa: S106 - of no Grafana
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inspect(service: str) -> dict[str, Any]:
    """Return what Docker knows of a service's only container."""
    (details,) = inspect_all(service)
    return details


def inspect_all(service: str = "") -> list[dict[str, Any]]:
    """Return what Docker knows of a service's containers, or of all."""
    labels = [f"com.docker.compose.project={PROJECT}", *([f"com.docker.compose.service={service}"] if service else [])]
    names = docker("ps", "-aq", *(word for label in labels for word in ("--filter", f"label={label}"))).split()
    details: list[dict[str, Any]] = json.loads(docker("inspect", *names))
    return details


@pytest.fixture(scope="session")
def containers(docker_engine: None) -> Iterator[Containers]:
    """`make demo` by Docker, on a free port, in a project of its own; `down -v` at the end leaves nothing."""
    port = free_ports(["NGINX_HTTP_PORT"])["NGINX_HTTP_PORT"]
    environment = clean_environment(
        STACK_WAY="docker", NGINX_HTTP_PORT=str(port), COMPOSE_PROJECT_NAME=PROJECT, BUILDKIT_PROGRESS="plain"
    )
    try:
        up = run_ops("up", "--demo", environment=environment, timeout_seconds=900)
        assert up.returncode == 0, (up.stdout + up.stderr)[-6000:]
        yield Containers(f"http://127.0.0.1:{port}", environment, up.stdout)
    finally:
        docker("compose", *FILES, "--profile", "*", "down", "--volumes", "--remove-orphans")
    project = ("--filter", f"label=com.docker.compose.project={PROJECT}")
    assert docker("ps", "-aq", *project) == docker("volume", "ls", "-q", *project) == ""
