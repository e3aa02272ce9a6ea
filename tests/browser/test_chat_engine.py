"""The real engine behind the page: it counts, it samples as told, and it dies in the middle of an answer."""
# ruff: noqa: RUF001

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenChat
from tests.browser.test_chat_page import exact_answer
from tests.conftest import ROOT, Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]

RESTARTED_MS = 240_000
COUNT = "从 1 数到 200。"
COUNT_IN_ENGLISH = "Count from 1 to 200."


def descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def core_of(stack: Stack) -> int:
    """Return the process in which vLLM computes."""
    command = [ROOT / ".venv/bin/supervisorctl", "-c", stack.run_dir / "supervisord.conf", "pid", "vllm"]
    launcher = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)
    return next(pid for pid in descendants(launcher) if "EngineCor" in Path(f"/proc/{pid}/comm").read_text())


def test_figures_are_the_engines(stack: Stack, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url)
    chat.ask(COUNT)
    figures = chat.page.get_by_role("button", name=re.compile(r"首字 [\d.]+ 秒 · 每秒 [\d.]+ 词元 · 共 \d+ 词元"))
    figures.wait_for()
    chat.screenshot("stack-figures")
    figures.click()
    explained = chat.page.get_by_text(re.compile(r"提示用了 \d+ 个词元，回答用了 \d+ 个")).first.inner_text()
    prompt, answer = (int(number) for number in re.findall(r"用了 (\d+) 个", explained))
    assert 5 < prompt < 30
    assert answer > 400


def test_conversation_longer_than_the_context_goes_on(
    stack: Stack, questions: list[dict[str, Any]], open_chat: OpenChat
) -> None:
    chat = open_chat(stack.url)
    # Each takes more than 500 of the 4,096 tokens, and the answer half of them.
    for number in range(1, 7):
        chat.ask_and_wait(COUNT if number % 2 else COUNT_IN_ENGLISH)
        assert "超出" not in chat.answer
    assert "不再发送给模型" in chat.page.inner_text("body")
    chat.screenshot("stack-trimmed")


def test_engine_that_dies_leaves_a_marked_part_and_the_next_question_waits_for_its_return(
    stack: Stack, questions: list[dict[str, Any]], open_chat: OpenChat
) -> None:
    chat = open_chat(stack.url)
    chat.ask(COUNT)
    expect(chat.page.locator(".ai-message").last).to_contain_text("1、2、3、")
    os.kill(core_of(stack), signal.SIGKILL)
    chat.page.get_by_role("button", name="重试").wait_for()
    part, _, rest = chat.answer.partition("\n")
    assert exact_answer(questions, COUNT).startswith(part.strip())
    assert "以上回答不完整" in rest
    chat.page.get_by_role("button", name="继续写").wait_for()
    chat.screenshot("stack-engine-died")
    expect(chat.page.locator("#engine-state")).to_contain_text("模型启动中")
    chat.page.get_by_role("button", name="重试").click()
    expect(chat.page.locator(".ai-message").last).to_contain_text("您的问题已收到")
    chat.screenshot("stack-engine-returns")
    chat.page.get_by_role("button", name="重新生成").wait_for(timeout=RESTARTED_MS)
    assert chat.answer.strip() == exact_answer(questions, COUNT)
    assert chat.page.locator(".ai-message").count() == 1
    assert chat.complaints == []
