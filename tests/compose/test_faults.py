"""The profile `faults`: the scorecard against the gateway's own image; nothing else is started, nothing published."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compose.conftest import docker
from tests.conftest import ROOT, clean_environment

pytestmark = pytest.mark.compose

PROJECT = "ernie-serving-faults"
SERVICES = {"fault-engine", "fault-gateway", "faults"}


def compose(*arguments: str) -> str:
    return docker("compose", "--profile", "faults", *arguments, COMPOSE_PROJECT_NAME=PROJECT)


@pytest.fixture
def clean_project(docker_engine: None) -> Iterator[None]:
    yield
    compose("down", "--volumes", "--remove-orphans")


def test_lab_is_confined_and_publishes_nothing(docker_engine: None) -> None:
    services: dict[str, Any] = json.loads(compose("config", "--format", "json"))["services"]
    for name in SERVICES:
        assert services[name]["profiles"] == ["faults"]
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert set(services[name]["networks"]) == {"engine"}
        assert not services[name].get("ports")
        assert int(services[name]["deploy"]["resources"]["limits"]["memory"]) > 0


def test_scorecard_of_the_profile_is_all_ok(clean_project: None) -> None:
    done = subprocess.run(
        ["docker", "compose", "--profile", "faults", "run", "--build", "--rm", "faults"],
        cwd=ROOT,
        env=clean_environment(COMPOSE_PROJECT_NAME=PROJECT, BUILDKIT_PROGRESS="plain"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert done.stdout.rstrip().endswith(" 0 FAILED")
    started = compose("ps", "--services").split()
    assert set(started) == SERVICES - {"faults"}, "nothing but the lab may start"
