"""The network fails for a moment, and the page stays what it is: only a "no" of the server sends a person to the login.

Chainlit asks who is there whenever the window gets the focus or the network comes back, which is when it fails.
"""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import FaultyChat, OpenChat, wait_until
from tests.browser.relay import relay

pytestmark = pytest.mark.browser

# More than once: it does not ask when it has just asked.
COME_BACK = "window.comingBack = setInterval(() => window.dispatchEvent(new Event('focus')), 200)"
STAY = "clearInterval(window.comingBack)"
FAILURES: dict[str, Callable[[Route], None]] = {
    "no network": lambda route: route.abort("internetdisconnected"),
    "restarting": lambda route: route.fulfill(status=502, body="<html>Bad Gateway</html>"),
    "store away": lambda route: route.fulfill(status=503, json={"detail": "Later."}),
    "too many requests": lambda route: route.fulfill(status=429, json={"error": {"message": "Slowly."}}),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_page_that_cannot_ask_who_is_there_stays(faulty_chat: FaultyChat, open_chat: OpenChat, failure: str) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("one")
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
    chat.wait_until_idle()
    chat.page.locator("#chat-input").fill("half a question")
    chat.page.evaluate("window.isTheSame = true")
    chat.page.route("**/user", FAILURES[failure])
    with chat.page.expect_request("**/user"):
        chat.page.evaluate(COME_BACK)
    chat.page.evaluate(STAY)
    # It asks again: what it does about a failure, it has done by then.
    with chat.page.expect_request("**/user"):
        pass
    chat.page.unroute("**/user")
    with chat.page.expect_response("**/user") as answered:
        pass
    assert answered.value.ok
    assert chat.page.evaluate("window.isTheSame")
    expect(chat.page.locator("#chat-input")).to_have_value("half a question")
    chat.ask("two")
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said one.", "You said two."])


def test_list_of_conversations_whose_way_is_cut_comes_with_the_next_try(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    chat.page.route("**/project/threads", FAILURES["no network"])
    with chat.page.expect_request("**/project/threads"):
        chat.ask("one")
    chat.page.unroute("**/project/threads")
    expect(chat.page.locator("#thread-history li")).to_have_text(["one"])


def test_person_whom_the_server_does_not_know_any_more_is_sent_to_the_login(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    chat.page.context.clear_cookies()
    chat.page.route("**/user", lambda route: route.fulfill(status=401, json={"detail": "Not authenticated"}))
    with chat.page.expect_navigation(url="**/login"):
        chat.page.evaluate(COME_BACK)


def test_page_whose_connection_is_cut_twice_within_a_moment_shows_its_answer(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    faulty_chat.gateway.loading = True
    port = urlsplit(faulty_chat.url).port
    assert port
    with relay(port) as way:
        chat = open_chat(way.url)
        wait_until(chat.is_connected)
        chat.ask("one")
        wait_until(lambda: len(faulty_chat.gateway.prompts) == 1)
        chat.page.evaluate("window.isTheSame = true")
        for _ in range(2):
            way.cut()
            wait_until(chat.is_connected)
        faulty_chat.gateway.loading = False
        expect(chat.page.locator(".ai-message")).to_contain_text(["You said one."])
        assert chat.page.evaluate("window.isTheSame")
