"""The store of conversations breaks: the chat goes on, and one message says what is the matter and what to do."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Response, expect

from tests.browser.conftest import ChatPage, FaultyChat, OpenChat

pytestmark = pytest.mark.browser

AWAY = (
    "以往的对话暂时打不开，也改不了：可以继续聊天，过一会儿刷新页面再试。 "  # noqa: RUF001
    "Past conversations cannot be opened or changed right now: go on chatting, and reload the page in a while."
)
NOT_KEPT = "对话暂时无法保存：可以继续聊天，但刷新或关闭页面后，这些内容可能找不回来。"  # noqa: RUF001
SHOWN_TOASTS = "[data-sonner-toast]:visible"


@contextlib.contextmanager
def broken(folder: Path) -> Iterator[None]:
    """Take the table of conversations away for a while."""
    with contextlib.closing(sqlite3.connect(folder / "history.sqlite", isolation_level=None)) as file:
        file.execute("ALTER TABLE threads RENAME TO elsewhere")
        try:
            yield
        finally:
            file.execute("ALTER TABLE elsewhere RENAME TO threads")


def is_search(response: Response) -> bool:
    """Tell whether this answers the search dialog, which looks as soon as the page is there, after the list."""
    return response.url.endswith("/project/threads") and '"first":20' in (response.request.post_data or "")


def begin(chat: ChatPage) -> None:
    chat.ask("one")
    expect(chat.page.locator("#thread-history li")).to_have_count(1)
    chat.wait_until_idle()


def test_list_that_cannot_be_read_says_so_once_and_the_chat_goes_on(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    begin(chat)
    with broken(faulty_chat.folder):
        with chat.page.expect_response(is_search):
            chat.page.goto(faulty_chat.url)
        expect(chat.page.get_by_role("alert")).to_have_text(AWAY)
        expect(chat.page.locator(SHOWN_TOASTS)).to_have_count(0)
        chat.screenshot("store-broken-list")
        chat.ask("two")
        expect(chat.page.locator(".ai-message").last).to_contain_text("You said two.")
        expect(chat.page.locator(SHOWN_TOASTS)).to_have_text([NOT_KEPT])
        chat.screenshot("store-broken-asked")
        assert "Service Unavailable" not in chat.page.inner_text("body")
    # The page rests for two seconds after a failure.
    chat.page.wait_for_timeout(2000)
    chat.page.reload()
    expect(chat.page.locator("#thread-history").get_by_text("one")).to_be_visible()


def test_change_that_cannot_be_kept_says_so_once(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url, language="en-US")
    begin(chat)
    entry = chat.page.locator("#thread-history li").first
    entry.hover()
    entry.locator("#thread-options").click()
    chat.page.locator("#rename-thread").click()
    chat.page.get_by_role("dialog").locator("#name").fill("other")
    with broken(faulty_chat.folder):
        chat.page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
        expect(chat.page.locator(SHOWN_TOASTS)).to_have_text([AWAY])
        chat.screenshot("store-broken-rename")
        assert "Service Unavailable" not in chat.page.inner_text("body")
