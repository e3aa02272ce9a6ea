"""What this host offers: a Docker engine, an NVIDIA card for its containers, free ports."""

import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from docker.errors import DockerException

from ops.docker_engine import docker_engine
from ops.errors import StackError

ASK_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class Host:
    """The host as the choice of a way needs it; `why` says what was seen, for people."""

    docker: bool
    nvidia: bool
    why: str


def inspect_host() -> Host:
    """Ask the Docker engine what it is and whether it can hand a card to a container. Changes nothing."""
    try:
        with docker_engine(ASK_TIMEOUT_SECONDS) as engine:
            info = engine.info()
    except (DockerException, OSError):
        return Host(docker=False, nvidia=False, why="no Docker engine answers")
    if not _has_compose():
        return Host(docker=False, nvidia=False, why="Docker is here, its compose plugin (v2) is not")
    if not _offers_nvidia(info):
        return Host(docker=True, nvidia=False, why="Docker is here, an NVIDIA runtime for its containers is not")
    if not _has_card():
        return Host(docker=True, nvidia=False, why="Docker and the NVIDIA runtime are here, a card is not")
    return Host(docker=True, nvidia=True, why="Docker and an NVIDIA GPU are here")


def require_free_ports(ports: Mapping[str, int]) -> None:
    """Raise `StackError` naming the setting of the first port that another program holds."""
    for name, port in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except PermissionError:
                raise StackError(f"Port {port} needs root: set {name} to a port above 1023.") from None
            except OSError:
                raise StackError(
                    f"Port {port} is taken by another program: stop that, or set {name} to a free port.",
                ) from None


def require_free_disk(path: str, gigabytes: int) -> None:
    """Raise `StackError` if the disk that holds `path` has less than `gigabytes` free."""
    free = shutil.disk_usage(path).free / 1e9
    if free < gigabytes:
        raise StackError(f"Only {free:.1f} GB are free on the disk of {path}; {gigabytes} GB are needed. Free some.")


def _has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def _offers_nvidia(info: Mapping[str, object]) -> bool:
    runtimes = info.get("Runtimes") or {}
    devices = info.get("DiscoveredDevices") or []  # CDI, engine 28 and newer
    return (isinstance(runtimes, Mapping) and "nvidia" in runtimes) or "nvidia.com/gpu" in str(devices)


def _has_card() -> bool:
    if shutil.which("nvidia-smi") is None:
        return False
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and "GPU" in done.stdout
