"""The logs of the running stack: one JSON line a request in each service, one id through all, and no prompt in any."""

import json
import time
import uuid
from typing import Any

import httpx
import pytest

from tests.conftest import Stack

pytestmark = pytest.mark.stack

WAIT_SECONDS = 20
SERVICES = ("nginx", "gateway", "vllm")


def lines_with(stack: Stack, service: str, text: str) -> list[str]:
    log = (stack.run_dir / "logs" / f"{service}.log").read_text(encoding="utf-8", errors="replace")
    return [line for line in log.splitlines() if text in line]


def line_of(stack: Stack, service: str, request_id: str) -> dict[str, Any]:
    """Return the one line that a service has of a request, parsed; it is written when the request is over."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := lines_with(stack, service, request_id)):
        assert time.monotonic() < deadline, f"{service} has no line of {request_id}"
        time.sleep(0.1)
    [line] = found
    parsed: dict[str, Any] = json.loads(line)
    return parsed


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_one_id_finds_a_request_in_every_log(stack: Stack, streamed: bool) -> None:
    request_id = f"find-{uuid.uuid4()}"
    body = {"messages": [{"role": "user", "content": "你好"}], "stream": streamed, "max_tokens": 8}
    answer = httpx.post(
        f"{stack.url}/v1/chat/completions",
        json=body,
        headers={"x-request-id": request_id},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-request-id"] == request_id
    nginx, gateway, vllm = (line_of(stack, service, request_id) for service in SERVICES)
    assert nginx["request_id"] == gateway["request_id"] == vllm["request_id"] == request_id
    assert gateway["engine_request_id"] == vllm["engine_request_id"]
    assert gateway["engine_request_id"] in answer.text, "vLLM names its answer after it"
    assert (nginx["status"], gateway["status"], vllm["status"]) == (200, 200, 200)
    assert (nginx["completed"], gateway["outcome"], vllm["completed"]) == ("OK", "ok", True)


def test_no_prompt_and_no_answer_is_in_any_log(stack: Stack) -> None:
    """Whatever becomes of it: answered, refused here, refused by vLLM, cut by the client."""
    marked = f"marked{uuid.uuid4().hex}"
    messages = [{"role": "user", "content": f"{marked} 你好"}]
    asked: list[dict[str, Any]] = [
        {"messages": messages, "max_tokens": 8},
        {"messages": messages, "max_tokens": 8, "stream": True, "stop": [marked], "user": marked},
        {"messages": messages, "temperature": marked},
        # The name of a model is no prompt: vLLM logs one that it does not serve.
        {"messages": messages, "model": "unknown"},
        {"messages": [{"role": "user", "content": marked * 2000}], "max_tokens": 8},
        {"prompt": marked, "max_tokens": 8},
    ]
    last = ""
    with httpx.Client(base_url=stack.url, trust_env=False, timeout=60) as client:
        for body in asked:
            path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
            last = f"last-{uuid.uuid4()}"
            client.post(path, json=body, headers={"x-request-id": last}, params={"q": marked})
        with client.stream("POST", "/v1/chat/completions", json={"messages": messages, "stream": True}) as stream:
            next(stream.iter_raw())
    for service in SERVICES:
        line_of(stack, service, last)
    logs = sorted((stack.run_dir / "logs").iterdir())
    assert {"nginx.log", "gateway.log", "vllm.log", "chat-ui.log"} <= {log.name for log in logs}
    assert [log.name for log in logs if marked in log.read_text(encoding="utf-8", errors="replace")] == []
