"""Abort, restart, and a second `up`: what happens to a stack that is in use."""

import re
import time
from typing import Any

import httpx
import pytest

from tests.conftest import Stack, run_ops

pytestmark = pytest.mark.stack

GONE_SECONDS = 5


def running_requests(stack: Stack) -> float:
    """Read the engine's own count of what it works on."""
    text = httpx.get(f"http://127.0.0.1:{stack.ports['ENGINE_PORT']}/metrics", trust_env=False).text
    found = re.search(r"^vllm:num_requests_running\{[^}]*\} ([0-9.e+]+)$", text, flags=re.MULTILINE)
    assert found, "the engine no longer publishes vllm:num_requests_running"
    return float(found.group(1))


def confirmed_aborts(stack: Stack) -> float:
    """Read how many aborts the gateway saw the engine carry out."""
    text = httpx.get(f"http://127.0.0.1:{stack.ports['GATEWAY_PORT']}/metrics", trust_env=False).text
    found = re.search(r'^gateway_aborts_total\{confirmed="yes"\} ([0-9.e+]+)$', text, flags=re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def wait_for_running(stack: Stack, wanted: float) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while running_requests(stack) != wanted:
        assert time.monotonic() < deadline, f"the engine still works on {running_requests(stack)} requests"
        time.sleep(0.02)


def test_leaving_a_stream_frees_the_engine(stack: Stack, questions: list[dict[str, Any]]) -> None:
    longest = max(questions, key=lambda case: len(case["answer"]))
    body = {"model": "ernie-demo", "messages": longest["messages"], "stream": True, "max_tokens": 1500}
    with httpx.stream("POST", f"{stack.url}/v1/chat/completions", json=body, trust_env=False) as answer:
        assert answer.status_code == 200
        next(answer.iter_bytes())
        before = confirmed_aborts(stack)
    deadline = time.monotonic() + GONE_SECONDS
    while confirmed_aborts(stack) != before + 1:
        assert time.monotonic() < deadline, "the gateway did not see the engine stop"
        time.sleep(0.02)
    wait_for_running(stack, 0)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["up", "--demo"], {}),
        (["up"], {"ENGINE_MODEL": "demo"}),  # the model that runs: nothing to check
        (["up"], {"HF_HUB_OFFLINE": "1"}),  # the launcher's check, beside an engine that holds the port; the demo again
    ],
)
def test_a_second_up_leaves_the_engine_alone(stack: Stack, arguments: list[str], settings: dict[str, str]) -> None:
    before = httpx.get(f"http://127.0.0.1:{stack.ports['ENGINE_PORT']}/metrics", trust_env=False).text
    started = re.search(r"^process_start_time_seconds (\S+)$", before, flags=re.MULTILINE)
    up = run_ops(*arguments, environment=stack.environment | settings)
    assert up.returncode == 0, up.stdout + up.stderr
    after = httpx.get(f"http://127.0.0.1:{stack.ports['ENGINE_PORT']}/metrics", trust_env=False).text
    assert started
    assert started.group(0) in after


def test_status_names_every_service(stack: Stack) -> None:
    status = run_ops("status", environment=stack.environment)
    assert status.returncode == 0, status.stdout + status.stderr
    for service in ("vllm", "gateway", "chat-ui", "nginx"):
        assert re.search(rf"{service}\s+running", status.stdout), status.stdout


def test_a_port_in_use_is_one_line_and_starts_nothing(stack: Stack) -> None:
    other = stack.environment | {"STACK_RUN_DIR": str(stack.run_dir / "second")}
    up = run_ops("up", "--demo", environment=other)
    assert up.returncode != 0
    assert "NGINX_HTTP_PORT" in up.stderr
    assert "Traceback" not in up.stderr
    assert not (stack.run_dir / "second" / "supervisord.pid").exists()


def test_an_unknown_setting_is_one_line_and_starts_nothing(stack: Stack) -> None:
    up = run_ops("up", "--demo", environment=stack.environment | {"GATEWAY_RATE_LIMTI": "1"})
    assert up.returncode == 2
    assert "GATEWAY_RATE_LIMTI" in up.stderr
