"""How the host's Docker engine is found out to be away."""

import gc
import socket
from pathlib import Path

import pytest
from docker.errors import DockerException

from ops.docker_engine import docker_engine
from ops.host import inspect_host


@pytest.fixture(params=["no engine behind it", "no socket", "a plain file"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address where no engine answers, as `docker` is told of it."""
    path = tmp_path / "docker.sock"
    if request.param == "no engine behind it":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    if request.param == "a plain file":
        path.touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return str(path)


def test_an_engine_that_is_away_is_named_and_no_socket_is_left_behind(address: str) -> None:
    with pytest.raises(DockerException, match=address), docker_engine(1):
        pass
    gc.collect()  # a socket that nobody closed would be an error here


def test_a_host_without_an_engine_is_said_to_have_none(address: str) -> None:
    assert not inspect_host().docker
    gc.collect()
