"""A conversation that is taken up again has what it had: every answer's figures, the last one's buttons, each once."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import ChatPage, FaultyChat, OpenChat, wait_until

pytestmark = pytest.mark.browser

FIGURES = re.compile(r"首字 [\d.]+ 秒")


def ask(chat: ChatPage, question: str) -> None:
    before = chat.page.locator(".ai-message").count()
    chat.ask(question)
    chat.page.locator(".ai-message").nth(before).get_by_role("button", name=FIGURES).wait_for()
    chat.wait_until_idle()


def lose_the_connection(chat: ChatPage) -> None:
    chat.cut_connection()
    wait_until(chat.is_connected)
    # Answered after all that the server had to say of the return.
    ask(chat, "three")


def figures(chat: ChatPage) -> list[str]:
    return chat.page.get_by_role("button", name=FIGURES).all_inner_texts()


def test_conversation_that_is_loaded_anew_shows_its_figures_and_buttons_once(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    ask(chat, "count to 20")
    ask(chat, "two")
    before = figures(chat)
    assert len(before) == 2
    chat.page.reload()
    expect(chat.page.get_by_role("button", name=FIGURES)).to_have_text(before)
    expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)
    lose_the_connection(chat)
    assert figures(chat)[:2] == before
    assert len(figures(chat)) == 3
    expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)


def test_conversation_that_is_gone_back_to_shows_its_figures_and_buttons_once(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    ask(chat, "one")
    before = figures(chat)
    chat.page.locator("#new-chat-button").click()
    expect(chat.page.locator(".ai-message")).to_have_count(0)
    ask(chat, "two")
    for title in "one", "two", "one":
        chat.page.locator("#thread-history").get_by_text(title, exact=True).click()
        expect(chat.page.locator(".ai-message")).to_contain_text([f"You said {title}."])
        expect(chat.page.get_by_role("button", name=FIGURES)).to_have_count(1)
        expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)
    assert figures(chat) == before


def test_conversation_that_was_lost_on_its_way_comes_with_the_next_connection(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    ask(chat, "one")
    # Requests alone, so that an answer can be withheld.
    chat.page.add_init_script("window.transports = ['polling']")
    lost = []

    def lose(route: Route) -> None:
        response = route.fetch()
        if "resume_thread" in response.text() and not lost:
            lost.append(response.url)
            route.abort("connectionreset")
        else:
            route.fulfill(response=response)

    chat.page.route("**/ws/socket.io/**", lose)
    chat.page.reload()
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
    expect(chat.page.get_by_role("button", name=FIGURES)).to_have_count(1)
    assert len(lost) == 1
    chat.page.unroute_all(behavior="ignoreErrors")  # a poll waits still


def test_figures_are_not_shown_where_they_are_switched_off(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    ask(chat, "one")
    chat.page.locator("#chat-settings-open-modal").click()
    chat.page.get_by_role("dialog").get_by_role("switch").click()
    chat.page.locator("#confirm").click()
    chat.ask("two")
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said one.", "You said two."])
    chat.wait_until_idle()
    chat.page.reload()
    expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)
    assert figures(chat) == []
