"""The choice of a way, and the states that end a start."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.container import merge, state_of
from ops.containers import Containers
from ops.errors import StackError
from ops.host import Host, _offers_nvidia, require_free_disk, require_free_ports
from ops.process import tree_of, usage_of_tree
from ops.processes import Processes
from ops.settings import Settings, Way
from ops.stage import Stage, furthest_behind
from ops.supervision import pairs
from ops.up import choose_way
from ops.way import ServiceState

GPU = Host(docker=True, nvidia=True, why="Docker and an NVIDIA GPU are here")
CPU = Host(docker=True, nvidia=False, why="no card")
BARE = Host(docker=False, nvidia=False, why="no Docker engine answers")


def settings(way: Way = "auto") -> Settings:
    return Settings(root=Path("/r"), run_dir=Path("/r/.run"), way=way, start_timeout_seconds=1, environment={})


def test_a_card_gives_the_gpu_compose_file() -> None:
    way, why = choose_way(settings(), GPU)
    assert isinstance(way, Containers)
    assert way.name == "docker compose"
    assert why == GPU.why


def test_docker_without_a_card_gives_the_cpu_file() -> None:
    way, _ = choose_way(settings(), CPU)
    assert way.name == "docker compose, CPU"


def test_no_docker_gives_plain_processes() -> None:
    way, _ = choose_way(settings(), BARE)
    assert isinstance(way, Processes)


def test_the_setting_decides_where_there_is_docker_too() -> None:
    way, why = choose_way(settings("native"), GPU)
    assert isinstance(way, Processes)
    assert why == "STACK_WAY=native"


def test_docker_by_setting_without_docker_is_refused() -> None:
    with pytest.raises(StackError, match="STACK_WAY=docker"):
        choose_way(settings("docker"), BARE)


@pytest.mark.parametrize(
    ("info", "offered"),
    [
        ({"Runtimes": {"runc": {}, "nvidia": {}}}, True),
        ({"Runtimes": {"runc": {}}, "DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}, True),
        ({"Runtimes": {"runc": {"path": "/opt/nvidia-like"}}}, False),
        ({}, False),
    ],
)
def test_nvidia_is_seen_as_runtime_or_as_device(info: dict[str, object], offered: bool) -> None:
    assert _offers_nvidia(info) is offered


def test_taken_port_is_refused_by_the_settings_name() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(StackError, match=f"{port}.*GATEWAY_PORT"):
            require_free_ports({"GATEWAY_PORT": port})


def test_too_little_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="are needed"):
        require_free_disk(str(tmp_path), 10**9)


@pytest.mark.parametrize(
    ("state", "restarts", "word", "healthy", "failed"),
    [
        ({"Status": "created"}, 0, "waiting", False, False),
        ({"Status": "running", "Health": {"Status": "starting"}}, 0, "starting", False, False),
        ({"Status": "running", "Health": {"Status": "healthy"}}, 0, "healthy", True, False),
        ({"Status": "running", "Health": {"Status": "unhealthy"}}, 0, "unhealthy", False, False),
        ({"Status": "restarting", "ExitCode": 2}, 1, "ended with 2, restarts: 1", False, False),
        ({"Status": "restarting", "ExitCode": 2}, 3, "ended with 2, restarts: 3", False, True),
    ],
)
def test_container_states(state: dict[str, object], restarts: int, word: str, healthy: bool, failed: bool) -> None:
    found = state_of(SimpleNamespace(attrs={"State": state, "RestartCount": restarts}))  # type: ignore[arg-type]
    assert (found.word, found.healthy, found.failed) == (word, healthy, failed)


def test_all_engines_of_a_scaled_service_are_shown() -> None:
    one = ServiceState("healthy", healthy=True)
    two = ServiceState("starting")
    gone = ServiceState("ended with 5, restarts: 3", failed=True)
    assert merge([]) == ServiceState("waiting")
    assert merge([two]) is two
    assert merge([one, two]) == ServiceState("1 of 2 healthy; starting", healthy=True)
    # One engine that gave up does not fail the start while another works or still may.
    assert merge([one, gone]).failed is False
    assert merge([gone, gone]).failed is True


def test_the_engine_that_keeps_others_waiting_is_shown() -> None:
    assert furthest_behind([]) is None
    assert furthest_behind([Stage("serving"), Stage("compiling"), Stage("loading")]) == Stage("loading")
    assert furthest_behind([Stage("serving")]) == Stage("serving")


def test_a_tree_of_processes_is_counted_whole() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as shell:
        try:
            deadline = time.monotonic() + 10
            while len(tree_of(shell.pid)) < 2:
                assert time.monotonic() < deadline, "the shell has not started its child"
                time.sleep(0.01)
            usage = usage_of_tree(shell.pid, "now")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert usage.threads == 2
    assert usage.handles >= 6
    assert usage.memory_bytes > 500_000
    assert usage_of_tree(shell.pid, "now").memory_bytes == 0


def test_values_pass_through_supervisords_quotes() -> None:
    assert pairs({"B": 'say "hi"', "A": "50%"}) == 'A="50%%",B=\'say "hi"\''


def test_a_value_supervisord_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(StackError, match="ENGINE_EXTRA_ARGS"):
        pairs({"ENGINE_EXTRA_ARGS": "both \" and '"})
