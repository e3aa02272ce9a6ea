"""Whom the running stack takes its clients for, as `make up` sets it: the browser's address up to the gateway."""

import asyncio
import json
import time
from typing import Any

import pytest

from tests.conftest import Stack
from tests.edge.person import Person

pytestmark = pytest.mark.stack

PERSON = "127.0.0.2"
LOGGED_WITHIN_SECONDS = 5.0
AGREED_WITHIN_SECONDS = 70.0  # the longest pause between two questions, and the question


def gateway_log(stack: Stack) -> list[dict[str, Any]]:
    lines = (stack.run_dir / "logs/gateway.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def clients_in(lines: list[dict[str, Any]]) -> list[str]:
    return [line["client"] for line in lines if line.get("route") == "chat_completions"]


def test_nginx_and_the_gateway_agree(stack: Stack) -> None:
    deadline = time.monotonic() + AGREED_WITHIN_SECONDS
    while "edge_agrees" not in [line["message"] for line in gateway_log(stack)]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "edge_disagrees" not in [line["message"] for line in gateway_log(stack)]


async def test_a_person_at_the_page_is_the_client(stack: Stack) -> None:
    async with Person(stack.url, PERSON) as person:
        assert await person.ask("你好")
    deadline = time.monotonic() + LOGGED_WITHIN_SECONDS
    while not (clients := clients_in(gateway_log(stack))) or clients[-1] != PERSON:
        assert time.monotonic() < deadline, clients
        await asyncio.sleep(0.02)
    assert "no key in" not in (stack.run_dir / "logs/chat-ui.log").read_text(encoding="utf-8")
