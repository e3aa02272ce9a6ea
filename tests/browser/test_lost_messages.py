"""A question that is sent while the connection dies: it is answered once, and stands on the page once."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ChatPage, FaultyChat, OpenChat, wait_until
from tests.browser.relay import Relay, relay

pytestmark = pytest.mark.browser

QUESTION = "two\n  lines: *a* <b> $5"
COUNT_ROLL_CALLS = """
    window.rollCalls = 0;
    window.addEventListener('message', (event) => { window.rollCalls += event.data?.type === 'roll-call' ? 1 : 0; });
"""


def port_of(chat: FaultyChat) -> int:
    port = urlsplit(chat.url).port
    assert port
    return port


def asked(chat: FaultyChat) -> list[str]:
    return [prompt[-1]["content"] for prompt in chat.gateway.prompts]


def ask_into_a_dying_connection(chat: ChatPage, way: Relay, question: str) -> None:
    """Send a question on a connection that passes nothing on any more, and end it."""
    wait_until(chat.is_connected)
    way.lose()
    chat.ask(question)
    expect(chat.page.locator("[data-step-type=user_message]").last).to_contain_text(question.partition("\n")[0])
    way.cut()


@pytest.mark.parametrize(("before", "reloads"), [(0, False), (1, False), (1, True)], ids=["first", "later", "reloaded"])
def test_question_sent_into_a_dying_connection_is_answered_once(
    faulty_chat: FaultyChat, open_chat: OpenChat, before: int, *, reloads: bool
) -> None:
    with relay(port_of(faulty_chat)) as way:
        chat = open_chat(way.url)
        for number in range(before):
            chat.ask(f"{number}")
            expect(chat.page.locator(".ai-message").last).to_contain_text(f"You said {number}.")
            chat.wait_until_idle()
        if reloads:
            chat.page.reload()
            expect(chat.page.get_by_role("button", name="重新生成")).to_have_count(1)
        ask_into_a_dying_connection(chat, way, QUESTION)
        expect(chat.page.locator(".ai-message").last).to_contain_text("You said two")
        chat.wait_until_idle()
        chat.screenshot(f"lost-question-{before}-{reloads}")
        assert chat.page.locator("[data-step-type=user_message]").count() == before + 1
        assert chat.page.locator(".ai-message").count() == before + 1
        chat.ask("next")
        expect(chat.page.locator(".ai-message").last).to_contain_text("You said next.")
        assert asked(faulty_chat) == [*map(str, range(before)), QUESTION, "next"]


@pytest.mark.parametrize("done", ["done", "under way"])
def test_answer_whose_beginning_was_lost_is_on_the_page(
    faulty_chat: FaultyChat, open_chat: OpenChat, done: str
) -> None:
    faulty_chat.gateway.loading = True
    with relay(port_of(faulty_chat)) as way:
        chat = open_chat(way.url)
        wait_until(chat.is_connected)
        way.lose(upwards=False)
        chat.ask("one")
        wait_until(lambda: asked(faulty_chat) == ["one"])
        if done == "done":
            faulty_chat.gateway.loading = False
            wait_until(lambda: faulty_chat.gateway.open_streams == 0)
        chat.page.evaluate(COUNT_ROLL_CALLS)
        way.cut()
        wait_until(lambda: chat.page.evaluate("rollCalls") == 1)
        faulty_chat.gateway.loading = False
        expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
        expect(chat.page.locator("#thread-history li")).to_have_text(["one"])
        assert "/thread/" in chat.page.url
        chat.wait_until_idle()
        chat.ask("next")
        expect(chat.page.locator(".ai-message")).to_contain_text(["You said one.", "You said next."])
    assert asked(faulty_chat) == ["one", "next"]


def test_question_that_came_before_the_connection_died_is_not_asked_again(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    faulty_chat.gateway.loading = True
    with relay(port_of(faulty_chat)) as way:
        chat = open_chat(way.url)
        wait_until(chat.is_connected)
        chat.ask("one")
        wait_until(lambda: asked(faulty_chat) == ["one"])
        chat.page.evaluate(COUNT_ROLL_CALLS)
        way.cut()
        # Connected is not yet back: the server has told the page what it missed once it calls the roll.
        wait_until(lambda: chat.page.evaluate("rollCalls") == 1)
        faulty_chat.gateway.loading = False
        expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
        chat.wait_until_idle()
        chat.ask("next")
        expect(chat.page.locator(".ai-message").last).to_contain_text("You said next.")
    assert asked(faulty_chat) == ["one", "next"]
