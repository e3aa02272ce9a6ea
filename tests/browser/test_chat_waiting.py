"""What a person sees while the engine is away, the queue is long or a limit is reached, and how they get on."""
# ruff: noqa: RUF001

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WIDTHS, FaultyChat, OpenChat, wait_until
from tests.browser.faulty_gateway import MODEL

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_page_opens_while_the_engine_loads_and_the_first_question_waits(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int
) -> None:
    faulty_chat.gateway.loading = True
    chat = open_chat(faulty_chat.url, width=width)
    banner = chat.page.get_by_role("status").filter(has_text="模型启动中：加载模型 45%，大约还需 41 秒")
    expect(banner).to_be_visible()
    assert 0.5 < float(chat.page.locator("#engine-state progress").get_attribute("value") or 0) < 0.6
    chat.screenshot(f"loading-{width}")
    chat.ask("one")
    pending = chat.page.locator(".ai-message").last
    expect(pending).to_contain_text("您的问题已收到，模型就绪后会自动回答")
    expect(pending).to_contain_text("前面还有 2 个提问")
    chat.screenshot(f"loading-asked-{width}")
    faulty_chat.gateway.loading = False
    expect(pending).to_contain_text("You said one.")
    expect(pending).not_to_contain_text("您的问题已收到")
    expect(chat.page.locator("#engine-state")).to_contain_text("模型已就绪")
    expect(chat.page.locator("#engine-state")).to_be_hidden()
    expect(chat.page.get_by_role("button", name=MODEL)).to_be_visible()
    assert [prompt[-1]["content"] for prompt in faulty_chat.gateway.prompts] == ["one"]
    # The gateway is asked no more once the engine is there.
    looks = faulty_chat.gateway.looks
    chat.ask("two")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said two.")
    assert faulty_chat.gateway.looks == looks


def test_waiting_question_can_be_stopped(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    faulty_chat.gateway.loading = True
    chat = open_chat(faulty_chat.url)
    chat.ask("one")
    expect(chat.page.locator(".ai-message").last).to_contain_text("您的问题已收到")
    chat.page.locator("#stop-button").click()
    wait_until(lambda: faulty_chat.gateway.open_streams == 0)
    expect(chat.page.locator(".ai-message").last).to_contain_text("已停止，还没有生成内容")
    expect(chat.page.locator(".ai-message").last).not_to_contain_text("您的问题已收到")


def test_wait_in_vain_is_not_called_a_broken_answer(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url, language="en-US")
    chat.ask("give up")
    chat.page.get_by_role("button", name="Retry").wait_for()
    assert "the queue is full" in chat.answer
    assert "broke off" not in chat.answer
    assert "not complete" not in chat.answer


@pytest.mark.parametrize(("fault", "seconds"), [("busy", 9), ("full", 8)])
def test_refusal_counts_down_and_one_click_asks_again(
    faulty_chat: FaultyChat, open_chat: OpenChat, fault: str, seconds: int
) -> None:
    faulty_chat.gateway.refusals_left = 1
    chat = open_chat(faulty_chat.url)
    chat.ask(fault)
    message = chat.page.locator(".ai-message").last
    # It runs: less than was asked for.
    expect(message).to_contain_text(re.compile(rf"请在 [1-{seconds - 1}] 秒后重试"))
    chat.screenshot(f"countdown-{fault}")
    expect(message).to_contain_text("现在可以重试了")
    chat.page.get_by_role("button", name="重试").click()
    expect(chat.page.locator(".ai-message")).to_contain_text([f"You said {fault}."])
    assert len(faulty_chat.gateway.prompts) == 2


def test_early_click_waits_for_the_end_of_the_countdown(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    faulty_chat.gateway.refusals_left = 1
    chat = open_chat(faulty_chat.url)
    chat.ask("busy for long")
    chat.page.get_by_role("button", name="重试").click()
    expect(chat.page.locator(".ai-message").last).to_contain_text("秒后自动重试")
    assert len(faulty_chat.gateway.prompts) == 1
    chat.screenshot("countdown-held")
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said busy for long."])
    assert len(faulty_chat.gateway.prompts) == 2


def test_gateway_that_is_away_is_looked_for_until_it_is_back(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("endless")
    expect(chat.page.locator(".ai-message").last).to_contain_text("word word")
    faulty_chat.stop_gateway()
    retry = chat.page.get_by_role("button", name="重试")
    retry.wait_for()
    assert re.match(r"(word ?)+", chat.answer)
    assert "以上回答不完整" in chat.answer
    expect(chat.page.locator("#engine-state")).to_contain_text("暂时连不上模型服务")
    chat.screenshot("gateway-killed")
    faulty_chat.start_gateway()
    expect(chat.page.locator("#engine-state")).to_contain_text("模型已就绪")
    chat.page.get_by_role("button", name="继续写").click()
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said 请从中断的地方接着写")
    assert re.match(r"(word ?)+", chat.answer)
    assert chat.page.locator(".ai-message").count() == 1
    chat.wait_until_idle()
    # The whole of it is one turn from now on.
    chat.ask("next")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said next.")
    prompt = faulty_chat.gateway.prompts[-1]
    assert [message["role"] for message in prompt] == ["user", "assistant", "user"]
    assert prompt[1]["content"].startswith("word")
    assert prompt[1]["content"].endswith("不要重复已经写过的内容。.")


def test_answer_that_ended_while_the_page_was_away_is_there_with_its_buttons(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    faulty_chat.gateway.loading = True
    chat.ask("one")
    wait_until(lambda: faulty_chat.gateway.open_streams == 1, timeout_seconds=20)
    chat.page.context.set_offline(True)
    chat.cut_connection()
    faulty_chat.gateway.loading = False
    wait_until(lambda: faulty_chat.gateway.open_streams == 0, timeout_seconds=20)
    expect(chat.page.get_by_text("无法连接到服务器")).to_be_visible()
    chat.screenshot("connection-lost")
    chat.page.context.set_offline(False)
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
    expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)
    assert len(faulty_chat.gateway.prompts) == 1
