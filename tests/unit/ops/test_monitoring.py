"""Prometheus and Grafana by setting: what is started with them, and what is refused."""

from pathlib import Path

import pytest

from ops.containers import Containers
from ops.errors import StackError
from ops.host import Host
from ops.settings import Settings
from ops.up import choose_way

GPU = Host(docker=True, nvidia=True, why="Docker and an NVIDIA GPU are here")
CPU = Host(docker=True, nvidia=False, why="no card")
BARE = Host(docker=False, nvidia=False, why="no Docker engine answers")
FILE = "docker-compose.monitoring.yml"
ON = {"STACK_MONITORING": "on", "STACK_GRAFANA_PASSWORD": "correct horse"}


def settings(environment: dict[str, str]) -> Settings:
    return Settings(
        root=Path("/r"), run_dir=Path("/r/.run"), way="auto", start_timeout_seconds=1, environment=environment
    )


def command(environment: dict[str, str], host: Host) -> list[str]:
    way, _ = choose_way(settings(environment), host)
    assert isinstance(way, Containers)
    return way._compose


def test_its_file_is_the_last_and_the_cards_exporter_needs_a_card() -> None:
    assert command(ON, GPU)[-4:] == ["-f", FILE, "--profile", "gpu"]
    assert command(ON, CPU)[-4:] == ["-f", "docker-compose.cpu.yml", "-f", FILE]
    assert FILE not in command({}, GPU)
    assert FILE not in command({"STACK_MONITORING": "off"}, GPU)


@pytest.mark.parametrize(
    ("environment", "host", "message"),
    [
        ({"STACK_MONITORING": "on"}, GPU, r"set STACK_GRAFANA_PASSWORD in \.env"),
        ({"STACK_MONITORING": "yes"}, GPU, "use on or off"),
        (ON, BARE, "needs Docker, but: no Docker engine answers"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(environment: dict[str, str], host: Host, message: str) -> None:
    with pytest.raises(StackError, match=message):
        choose_way(settings(environment), host)
