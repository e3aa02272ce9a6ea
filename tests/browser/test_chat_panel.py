"""The settings panel, and the numbers under an answer."""
# ruff: noqa: RUF001

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import WIDTHS, ChatPage, FaultyChat, OpenChat, wait_until

pytestmark = pytest.mark.browser

SAMPLING = ("temperature", "top_p", "repetition_penalty", "max_tokens")


def open_panel(chat: ChatPage) -> None:
    chat.page.locator("#chat-settings-open-modal:enabled").click()
    chat.page.get_by_role("dialog").get_by_text("温度").wait_for()


def choose_preset(chat: ChatPage, name: str) -> None:
    chat.page.locator("#preset").click()
    chat.page.get_by_role("option", name=name).click()


def save(chat: ChatPage) -> None:
    chat.page.locator("#confirm").click()
    chat.page.get_by_text("设置已保存").first.wait_for()
    chat.page.get_by_role("dialog").wait_for(state="detached")


def answered_body(chat: ChatPage, faulty_chat: FaultyChat, question: str) -> dict[str, Any]:
    chat.ask(question)
    expect(chat.page.locator(".ai-message").last).to_contain_text(f"You said {question}.")
    chat.wait_until_idle()
    return faulty_chat.gateway.bodies[-1]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_preset_and_system_prompt_reach_the_engine_and_outlive_a_lost_connection(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int
) -> None:
    chat = open_chat(faulty_chat.url, width=width)
    first = answered_body(chat, faulty_chat, "one")
    assert {name: first.get(name) for name in SAMPLING} == {
        "temperature": None,
        "top_p": None,
        "repetition_penalty": None,
        "max_tokens": 1024,
    }
    open_panel(chat)
    chat.page.locator("#system_prompt").fill("Be brief.")
    choose_preset(chat, "精确")
    # The sliders have followed, and what was typed has stayed.
    expect(chat.page.get_by_role("slider").first).to_have_attribute("aria-valuenow", "0")
    expect(chat.page.locator("#system_prompt")).to_have_value("Be brief.")
    chat.screenshot(f"panel-{width}")
    save(chat)
    chat.cut_connection()
    wait_until(chat.is_connected, timeout_seconds=20)
    body = answered_body(chat, faulty_chat, "two")
    assert {name: body[name] for name in SAMPLING} == {
        "temperature": 0.0,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "max_tokens": 1024,
    }
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    other = open_chat(faulty_chat.url, width=width)
    assert "temperature" not in answered_body(other, faulty_chat, "three")
    assert chat.complaints == []


def test_moved_slider_makes_the_style_custom(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    open_panel(chat)
    slider = chat.page.get_by_role("slider").first
    slider.focus()
    slider.press("ArrowRight")
    save(chat)
    assert answered_body(chat, faulty_chat, "one")["temperature"] == 0.75
    open_panel(chat)
    expect(chat.page.locator("#preset")).to_contain_text("自定义")


def test_preset_is_followed_again_after_a_panel_that_was_closed_unsaved(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    for _ in range(2):
        open_panel(chat)
        choose_preset(chat, "创意")
        expect(chat.page.get_by_role("slider").first).to_have_attribute("aria-valuenow", "1")
        chat.page.get_by_role("dialog").get_by_role("button", name="取消").click()
        chat.page.get_by_role("dialog").wait_for(state="detached")
    assert "temperature" not in answered_body(chat, faulty_chat, "one")


def test_system_prompt_above_the_limit_is_refused_with_both_numbers(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    open_panel(chat)
    chat.page.locator("#system_prompt").fill("长" * 5000)
    chat.page.locator("#confirm").click()
    chat.page.get_by_text("系统提示词过长：共 5000 个字符，最多 4000 个").first.wait_for()
    assert answered_body(chat, faulty_chat, "one")["messages"] == [{"role": "user", "content": "one"}]


def test_figures_stand_under_each_answer_until_they_are_switched_off(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    for number, question in enumerate(("one", "two"), start=1):
        answered_body(chat, faulty_chat, question)
        expect(chat.page.get_by_role("button", name=re.compile(r"首字 \d+\.\d\d 秒"))).to_have_count(number)
    # Every character is a token here: "one", "You said one.", "two" and "You said two.".
    expect(chat.page.get_by_role("button", name="共 16 词元")).to_be_visible()
    button = chat.page.get_by_role("button", name="共 32 词元")
    chat.screenshot("figures")
    button.click()
    chat.page.get_by_text("提示用了 19 个词元，回答用了 13 个。").wait_for()
    open_panel(chat)
    chat.page.get_by_role("switch").click()
    save(chat)
    answered_body(chat, faulty_chat, "three")
    expect(chat.page.get_by_role("button", name=re.compile("首字"))).to_have_count(2)


def test_history_is_trimmed_by_the_engines_count_and_the_person_is_told(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    faulty_chat.gateway.answer = "好" * 300
    for question in ("one", "two", "three", "four", "five"):
        chat.ask_and_wait(question)
    for body in faulty_chat.gateway.bodies:
        assert sum(len(message["content"]) for message in body["messages"]) + body["max_tokens"] <= 2048
    # Room for 1024: three answers of 300 and no fourth. Only where the bound left it open was anything counted.
    assert [len(prompt) for prompt in faulty_chat.gateway.prompts] == [1, 3, 5, 7, 7]
    assert faulty_chat.gateway.counts == 4
    assert "较早的内容（1 轮）不再发送给模型" in chat.answer


def test_answer_cut_by_its_limit_is_continued_in_place(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    faulty_chat.gateway.answer = "First half, "
    chat.ask("short")
    chat.page.get_by_role("button", name="继续写").wait_for()
    assert "已达到长度上限" in chat.answer
    faulty_chat.gateway.answer = "second half."
    chat.page.get_by_role("button", name="继续写").click()
    expect(chat.page.locator(".ai-message")).to_contain_text(["First half, second half."])
    assert [message["role"] for message in faulty_chat.gateway.prompts[-1]] == ["user", "assistant", "user"]
