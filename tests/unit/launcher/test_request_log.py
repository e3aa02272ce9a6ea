"""A line for each request, under the ids that the gateway gave it; nothing of what was said."""

import json
from typing import Any

import httpx
import pytest
from launcher.request_log import RequestLog


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/v1/broken":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("it broke")
    await receive()
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b"an answer", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Lines(list[Any]):
    """What was written, parsed."""

    def write(self, line: bytes) -> None:
        """Take a line."""
        assert line.endswith(b"\n")
        self.append(json.loads(line))


async def ask(lines: Lines, path: str, **arguments: Any) -> httpx.Response:
    transport = httpx.ASGITransport(RequestLog(application, lines.write))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        return await client.post(path, **arguments)


async def test_a_line_has_the_ids_and_the_end() -> None:
    lines = Lines()
    headers = {"x-gateway-request-id": "find-me", "x-request-id": "0123"}
    answer = await ask(lines, "/v1/chat/completions?secret=1", headers=headers, json={"messages": "a secret"})
    assert (answer.status_code, answer.text) == (201, "an answer")
    [line] = lines
    assert line.pop("time").startswith("20")
    assert 0 <= line.pop("duration_ms") < 5000
    assert line == {
        "service": "vllm",
        "request_id": "find-me",
        "engine_request_id": "0123",
        "method": "POST",
        "path": "/v1/chat/completions",
        "status": 201,
        "completed": True,
    }


async def test_an_answer_that_breaks_is_logged_as_that() -> None:
    lines = Lines()
    with pytest.raises(RuntimeError, match="it broke"):
        await ask(lines, "/v1/broken")
    assert [(line["status"], line["completed"]) for line in lines] == [(200, False)]


@pytest.mark.parametrize("path", ["/health", "/metrics", "/ping"])
async def test_probes_leave_no_line(path: str) -> None:
    lines = Lines()
    await ask(lines, path)
    assert lines == []


async def test_what_others_choose_is_bounded_and_stays_one_line() -> None:
    lines = Lines()
    await ask(lines, "/" + "a%0A" * 500, headers={"x-gateway-request-id": "b" * 5000})
    assert (len(lines[0]["path"]), len(lines[0]["request_id"])) == (128, 128)
