"""The running containers: a known answer through nginx, confinement, and a life after each one is replaced."""

import contextlib
import re
import time
from typing import Any

import httpx
import pytest

from tests.compose.conftest import PROJECT, Containers, docker, inspect
from tests.conftest import run_ops

pytestmark = pytest.mark.compose

SERVICES = ("vllm", "gateway", "chat-ui", "nginx")
AGREED_WITHIN_SECONDS = 70  # the longest pause between two questions of the gateway's, and the question
RECOVERY_SECONDS = 180  # an engine starts anew in 20 to 60 s, by the machine's load


def ask(url: str, case: dict[str, Any]) -> str:
    body = {"model": "ernie-demo", "messages": case["messages"], "max_tokens": 1024}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False).raise_for_status()
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def wait_for_answer(url: str, case: dict[str, Any]) -> float:
    """Ask until the exact answer comes back; returns the seconds it took."""
    started = time.monotonic()
    text = None
    while text is None:
        assert time.monotonic() - started < RECOVERY_SECONDS, f"no answer for {RECOVERY_SECONDS} s"
        with contextlib.suppress(httpx.HTTPError):
            text = ask(url, case)
        time.sleep(0.2)
    assert text == case["answer"]
    return time.monotonic() - started


def test_up_said_which_way_and_why(containers: Containers) -> None:
    assert re.search(r"Way: docker compose, CPU \(.+\)", containers.output)


def test_known_questions_get_their_exact_answers(containers: Containers, questions: list[dict[str, Any]]) -> None:
    for case in questions[:10]:
        assert ask(containers.url, case) == case["answer"]


def test_the_page_is_served(containers: Containers) -> None:
    page = httpx.get(containers.url, trust_env=False)
    assert page.status_code == 200
    assert "text/html" in page.headers["content-type"]


def test_every_container_is_healthy_confined_and_not_root(containers: Containers) -> None:
    for service in SERVICES:
        details = inspect(service)
        assert details["State"]["Health"]["Status"] == "healthy", service
        assert details["Config"]["User"] not in {"", "root", "0"}, service
        assert details["HostConfig"]["ReadonlyRootfs"] is True, service


def test_nginx_and_the_gateway_agree_on_who_a_client_is(containers: Containers) -> None:
    deadline = time.monotonic() + AGREED_WITHIN_SECONDS
    while "edge_agrees" not in (log := docker("logs", inspect("gateway")["Id"])):
        assert time.monotonic() < deadline, log
        time.sleep(0.5)
    assert "edge_disagrees" not in log


def test_the_page_has_the_key_that_the_gateway_made(containers: Containers) -> None:
    assert "no key in" not in docker("logs", inspect("chat-ui")["Id"])


def test_only_nginx_is_reachable_from_the_host(containers: Containers) -> None:
    published = {service: inspect(service)["HostConfig"]["PortBindings"] for service in SERVICES}
    assert [service for service, ports in published.items() if ports] == ["nginx"]


def test_no_argument_or_log_shows_the_token(containers: Containers) -> None:
    """The hub's token is the only secret of this version: it may be in the engine's environment, nowhere else."""
    for service in SERVICES[1:]:
        assert "HF_TOKEN" not in str(inspect(service)["Config"]["Env"])


@pytest.mark.parametrize("service", ["gateway", "chat-ui"])
def test_a_recreated_service_is_found_again(
    containers: Containers, questions: list[dict[str, Any]], service: str
) -> None:
    """Same name, new container, perhaps a new address: nginx must not keep the old one.

    Without `--no-deps`: that drops `depends_on` from the configuration's hash, and the next `up` would recreate it.
    """
    docker(
        "compose",
        "-f",
        "docker-compose.yml",
        "-f",
        "docker-compose.cpu.yml",
        "up",
        "-d",
        "--force-recreate",
        service,
        ENGINE_MODEL="demo",
        NGINX_HTTP_PORT=containers.environment["NGINX_HTTP_PORT"],
    )
    assert wait_for_answer(containers.url, questions[0]) < RECOVERY_SECONDS
    started = time.monotonic()
    while httpx.get(containers.url, trust_env=False).status_code != 200:
        assert time.monotonic() - started < RECOVERY_SECONDS
        time.sleep(0.2)


def test_a_killed_engine_comes_back_without_a_hand(containers: Containers, questions: list[dict[str, Any]]) -> None:
    details = inspect("vllm")
    docker("exec", details["Id"], "python3", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")
    assert wait_for_answer(containers.url, questions[0]) < RECOVERY_SECONDS
    assert inspect("vllm")["RestartCount"] == details["RestartCount"] + 1


def test_a_second_up_takes_seconds(containers: Containers) -> None:
    before = {service: inspect(service)["Id"] for service in SERVICES}
    up = run_ops("up", "--demo", environment=containers.environment)
    assert up.returncode == 0, up.stdout + up.stderr
    assert {service: inspect(service)["Id"] for service in SERVICES} == before


def test_a_port_in_use_is_one_line(containers: Containers) -> None:
    other = containers.environment | {"COMPOSE_PROJECT_NAME": f"{PROJECT}-second"}
    up = run_ops("up", "--demo", environment=other)
    assert up.returncode != 0
    assert "NGINX_HTTP_PORT" in up.stderr
    assert docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}-second") == ""
