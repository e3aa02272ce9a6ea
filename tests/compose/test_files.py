"""The compose files, without starting anything: only nginx is published, nobody is root, nothing is secret."""

import json
import subprocess
from typing import Any

import pytest

from tests.compose.conftest import docker
from tests.conftest import ROOT

pytestmark = pytest.mark.compose

SERVICES = {"vllm", "gateway", "chat-ui", "nginx"}


@pytest.fixture(scope="module", params=["gpu", "cpu"])
def config(request: pytest.FixtureRequest, docker_engine: None) -> dict[str, Any]:
    files = ["-f", "docker-compose.yml"] + (["-f", "docker-compose.cpu.yml"] if request.param == "cpu" else [])
    parsed: dict[str, Any] = json.loads(docker("compose", *files, "config", "--format", "json"))
    parsed["variant"] = request.param
    return parsed


def test_four_services(config: dict[str, Any]) -> None:
    assert set(config["services"]) == SERVICES


def test_only_nginx_publishes_a_port(config: dict[str, Any]) -> None:
    assert [name for name, service in config["services"].items() if service.get("ports")] == ["nginx"]


def test_start_order_is_by_health(config: dict[str, Any]) -> None:
    waits = {name: service.get("depends_on", {}) for name, service in config["services"].items()}
    assert {name: list(on) for name, on in waits.items()} == {
        "vllm": [],
        "gateway": ["vllm"],
        "chat-ui": ["gateway"],
        "nginx": ["chat-ui"],
    }
    assert {on["condition"] for wait in waits.values() for on in wait.values()} == {"service_healthy"}


def test_every_service_is_confined(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"]["max-size"] == "10m", name
        assert int(service["deploy"]["resources"]["limits"]["memory"]) > 0, name


def test_the_card_is_asked_for_on_a_gpu_host_only(config: dict[str, Any]) -> None:
    devices = config["services"]["vllm"]["deploy"]["resources"].get("reservations", {}).get("devices")
    assert bool(devices) is (config["variant"] == "gpu")


def test_only_the_gateway_shares_a_network_with_the_engine(config: dict[str, Any]) -> None:
    networks = {name: set(service["networks"]) for name, service in config["services"].items()}
    assert networks["vllm"] == {"engine"}
    assert {name for name, joined in networks.items() if "engine" in joined} == {"vllm", "gateway"}


def test_each_service_sees_its_own_variables(config: dict[str, Any]) -> None:
    prefixes = {
        "vllm": (
            "ENGINE_",
            "HF_TOKEN",
            "VLLM_ENABLE_CUDA_COMPATIBILITY",
            "VLLM_LOGGING_LEVEL",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "NO_PROXY",
        ),
        "gateway": ("GATEWAY_",),
        "chat-ui": ("CHAT_UI_",),
        "nginx": ("NGINX_",),
    }
    for name, service in config["services"].items():
        foreign = [key for key in service.get("environment") or {} if not key.startswith(prefixes[name])]
        assert foreign == [], name


def test_dockerfiles_name_no_root_and_no_secret() -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*Dockerfile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(files) == len(SERVICES) + 1, "one for each service, and the fault lab's"
    for file in files:
        text = (ROOT / file).read_text(encoding="utf-8")
        users = [line.split()[1] for line in text.splitlines() if line.startswith("USER ")]
        assert users, file
        assert users[-1] not in {"root", "0", "0:0"}, file
        assert "_TOKEN=" not in text
        assert "_KEY=" not in text
