"""The way to the host's Docker engine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import docker
from docker.context import ContextAPI
from docker.errors import DockerException
from docker.utils import kwargs_from_env

UNIX = "unix://"


@contextmanager
def docker_engine(timeout_seconds: int) -> Iterator[docker.DockerClient]:
    """Give a client of the engine that `docker` itself would talk to, closed at the end.

    Raises `DockerException` naming address and reason when the engine does not answer. `timeout_seconds` bounds every
    call of the client.
    """
    _require_open_door(timeout_seconds)
    client = docker.from_env(timeout=timeout_seconds)
    try:
        yield client
    finally:
        client.close()


def _require_open_door(timeout_seconds: int) -> None:
    """Try a local socket first: docker-py leaves the socket of a refused connection to the garbage collector."""
    address = kwargs_from_env().get("base_url") or ContextAPI.get_current_context().Host or ""
    if not address.startswith(UNIX):
        return
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(timeout_seconds)
        try:
            door.connect(address.removeprefix(UNIX))
        except OSError as error:
            raise DockerException(f"the Docker engine at {address} does not answer: {error!r}") from error
