"""The chat page on the real stack with the demo model: what a person asks and sees."""
# ruff: noqa: RUF001

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WIDTHS, OpenChat, wait_until
from tests.conftest import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]

Questions = list[dict[str, Any]]


def exact_answer(questions: Questions, question: str) -> str:
    """Return what the demo model was trained to answer to a first question."""
    return next(str(row["answer"]) for row in questions if [m["content"] for m in row["messages"]] == [question])


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_chinese_question_gets_its_exact_answer(
    stack: Stack, questions: Questions, open_chat: OpenChat, width: int
) -> None:
    chat = open_chat(stack.url, width=width)
    chat.screenshot(f"stack-welcome-{width}")
    chat.ask("你好")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert chat.answer.strip() == exact_answer(questions, "你好")
    chat.screenshot(f"stack-answer-{width}")
    assert chat.foreign_requests() == []
    assert chat.complaints == []


def test_served_model_is_named(stack: Stack, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url)
    expect(chat.page.get_by_role("button", name="ernie-demo")).to_be_visible()


def test_starter_gets_its_exact_answer(stack: Stack, questions: Questions, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url)
    chat.page.get_by_role("button", name="写一首短诗").click()
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert chat.answer.strip() == exact_answer(questions, "写一首诗。")


def test_code_is_shown_as_a_block(stack: Stack, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url)
    chat.ask("怎么启动？")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert chat.page.locator(".ai-message pre code").first.inner_text().strip() == "make up"
    chat.screenshot("stack-code")


def test_second_turn_knows_the_first(stack: Stack, questions: Questions, open_chat: OpenChat) -> None:
    row = next(row for row in questions if "multi-turn" in row["tags"] and row["lang"] == "zh")
    asked = [message["content"] for message in row["messages"] if message["role"] == "user"]
    chat = open_chat(stack.url)
    for question in asked:
        chat.ask_and_wait(question)
    expect(chat.page.locator(".ai-message")).to_have_count(len(asked))
    code = row["answer"].partition("```bash\n")[2].partition("\n```")[0]
    assert code in chat.answer


def confirmed_aborts(stack: Stack) -> float:
    """Return how many generations the gateway has seen the engine give up."""
    metrics = httpx.get(f"http://127.0.0.1:{stack.ports['GATEWAY_PORT']}/metrics", trust_env=False).text
    return float(metrics.partition('gateway_aborts_total{confirmed="yes"} ')[2].split("\n")[0] or 0)


def test_stop_keeps_the_part_that_came_and_frees_the_engine(
    stack: Stack, questions: Questions, open_chat: OpenChat
) -> None:
    before = confirmed_aborts(stack)
    chat = open_chat(stack.url)
    chat.stop_at("1、2、3、")
    chat.ask("从 1 数到 200。")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    part, _, note = chat.answer.partition("\n")
    assert exact_answer(questions, "从 1 数到 200。").startswith(part.strip())
    assert "200" not in part
    assert "已停止" in note
    wait_until(lambda: confirmed_aborts(stack) == before + 1)
    chat.screenshot("stack-stopped")


def test_english_browser_gets_an_english_page(stack: Stack, questions: Questions, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url, language="en-US")
    chat.ask("Who are you?")
    chat.page.get_by_role("button", name="Regenerate").wait_for()
    expected = exact_answer(questions, "Who are you?").replace("`", "")
    wait_until(lambda: chat.answer.strip() == expected)
    chat.screenshot("stack-english")
