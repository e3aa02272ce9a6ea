"""Conversations that outlive the page, on the real stack with the demo model: a guest's, and those behind a login."""
# ruff: noqa: S105

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from ops.accounts import set_password
from tests.browser.conftest import REGENERATE, TIMEOUT_MS, WIDTHS, ChatPage, OpenChat, wait_until
from tests.conftest import Stack, clean_environment, free_ports

pytestmark = [pytest.mark.browser, pytest.mark.stack]

PASSWORD = "correct horse"
THREAD = re.compile(r"/thread/[0-9a-f-]{36}$")
COUNTING = "从 1 数到 200。"
START_TIMEOUT_SECONDS = 120


def ask(chat: ChatPage, question: str) -> str:
    """Ask, wait for the whole answer and return it."""
    chat.ask_and_wait(question)
    return chat.answer.strip()


def reload(chat: ChatPage) -> None:
    """Load the page anew and wait for the conversation."""
    expect(chat.page).to_have_url(THREAD)
    chat.page.reload()
    chat.page.locator(".ai-message").first.wait_for()


def two_turns(questions: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Return a question, one that only makes sense after it, and the answer to that."""
    row = next(row for row in questions if "multi-turn" in row["tags"] and row["lang"] == "zh")
    first, second = (message["content"] for message in row["messages"] if message["role"] == "user")
    return first, second, row["answer"]


def code_in(answer: str) -> str:
    return answer.partition("```bash\n")[2].partition("\n```")[0]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_guest_goes_on_after_a_reload_and_the_model_knows_what_was_said(
    stack: Stack, questions: list[dict[str, Any]], open_chat: OpenChat, width: int
) -> None:
    first, second, expected = two_turns(questions)
    chat = open_chat(stack.url, width=width)
    answer = ask(chat, first)
    reload(chat)
    assert chat.answer.strip() == answer
    chat.screenshot(f"history-reloaded-{width}")
    assert code_in(expected) in ask(chat, second)
    reload(chat)
    expect(chat.page.locator(".ai-message")).to_have_count(2)
    # Once more, by the button of the last turn and by an edit of the first.
    chat.page.get_by_role("button", name=REGENERATE).last.click()
    expect(chat.page.locator(".ai-message")).to_have_count(2)
    chat.page.get_by_role("button", name=REGENERATE).last.wait_for()
    assert code_in(expected) in chat.answer
    assert chat.foreign_requests() == []


def test_two_browsers_do_not_see_each_others(stack: Stack, open_chat: OpenChat) -> None:
    one, other = open_chat(stack.url), open_chat(stack.url, language="en-US")
    answer = ask(one, "你好")
    expect(one.page).to_have_url(THREAD)
    address = one.page.url
    assert other.page.locator("#thread-history").inner_text().strip() in {"", "No conversations"}
    other.page.goto(address)
    other.page.locator("#chat-input").wait_for()
    expect(other.page.locator(".ai-message")).to_have_count(0)
    assert answer not in other.page.content()
    thread_id = address.rpartition("/")[2]
    for path in (f"/project/thread/{thread_id}", f"/history/export/{thread_id}.json", f"/project/share/{thread_id}"):
        assert other.page.request.get(stack.url + path).status in {401, 404}, path
    stolen = other.page.request.delete(f"{stack.url}/project/thread", data={"threadId": thread_id})
    assert stolen.status in {401, 404}
    one.page.reload()
    expect(one.page.locator(".ai-message")).to_have_count(1)


def test_a_locked_store_costs_no_answer_and_is_told(stack: Stack, open_chat: OpenChat) -> None:
    chat = open_chat(stack.url)
    file = stack.run_dir / "chat-ui/history.sqlite"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = ask(chat, "你好")
        assert answer
        expect(chat.page.get_by_text("对话暂时无法保存").first).to_be_visible()
        chat.screenshot("history-locked")
        other.execute("ROLLBACK")
    log = stack.run_dir / "logs/chat-ui.log"
    assert "conversations are not kept" in log.read_text()
    wait_until(lambda: bool(ask(chat, "你好")) and "conversations are kept again" in log.read_text(), 60)


@dataclass
class Accounts:
    """A page with a login before the stack's gateway, and where it keeps what is said."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def accounts(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    folder = tmp_path_factory.mktemp("accounts")
    for name in ("alice", "bob", "carol"):
        set_password(folder / "people", name, PASSWORD)
    port = str(free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"])
    environment = clean_environment(
        CHAT_UI_PORT=port,
        CHAT_UI_GATEWAY_URL=f"http://127.0.0.1:{stack.ports['GATEWAY_PORT']}",
        CHAT_UI_DATA_DIR=str(folder),
        CHAT_UI_LOGIN="password",
        # A busy machine loads a page for longer than people wait.
        CHAT_UI_DISCONNECT_GRACE_SECONDS="120",
        CHAT_UI_ACCOUNTS_FILE=str(folder / "people"),
        TMPDIR=str(folder),
    )
    log = folder / "log"
    with (
        log.open("w") as output,
        subprocess.Popen([sys.executable, "-m", "chat_ui"], env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            wait_until(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            yield Accounts(f"http://127.0.0.1:{port}", folder)
        finally:
            process.terminate()
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def log_in(browser: Browser, accounts: Accounts) -> Iterator[Any]:
    """Open the page in a browser of its own, by name and password: `log_in("alice", width=…)`."""
    contexts = []

    def open_page(name: str, password: str = PASSWORD, width: int = WIDTHS["desk"]) -> ChatPage:
        context = browser.new_context(locale="en-US", viewport={"width": width, "height": 844}, accept_downloads=True)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        chat = ChatPage(context.new_page(), accounts.url)
        chat.page.goto(accounts.url)
        chat.page.locator("#email").fill(name)
        chat.page.locator("#password").fill(password)
        chat.screenshot(f"login-{width}")
        chat.page.get_by_role("button", name="Sign In").click()
        return chat

    yield open_page
    for context in contexts:
        context.close()


def test_a_wrong_password_stays_outside_and_a_right_one_comes_back_to_what_was_said(
    log_in: Any, accounts: Accounts
) -> None:
    outside = log_in("alice", "wrong")
    expect(outside.page.get_by_text("Wrong name or password.")).to_be_visible()
    outside.screenshot("login-wrong")
    assert outside.page.request.get(f"{accounts.url}/user").status == 401

    chat = log_in("alice")
    chat.page.locator("#chat-input").wait_for()
    answer = ask(chat, "Who are you?")
    expect(chat.page).to_have_url(THREAD)
    chat.page.locator("#user-nav-button").click()
    chat.page.get_by_role("menuitem", name="Logout").click()
    chat.page.locator("#email").wait_for()
    assert chat.page.request.get(f"{accounts.url}/user").status == 401

    again = log_in("alice")
    again.page.locator("#thread-history").get_by_text("Who are you?").first.click()
    again.page.locator(".ai-message").first.wait_for()
    assert again.answer.strip() == answer
    again.screenshot("history-resumed")


def export(chat: ChatPage, thread_id: str) -> None:
    """Write out the open conversation as Markdown, and all of them, which is this one, as JSON."""
    chat.page.locator("#header").get_by_role("link", name="Export").click()
    chat.page.get_by_role("heading", name="This conversation").wait_for()
    chat.screenshot("history-export")
    with chat.page.expect_download() as markdown:
        chat.page.get_by_role("link", name="Markdown").first.click()
    assert markdown.value.suggested_filename == "An introduction.md"
    text = Path(markdown.value.path()).read_text(encoding="utf-8")
    assert text.startswith("# An introduction\n")
    assert "Who are you?" in text
    with chat.page.expect_download() as everything:
        chat.page.get_by_role("link", name="JSON").last.click()
    told = json.loads(Path(everything.value.path()).read_text(encoding="utf-8"))
    assert [thread["id"] for thread in told] == [thread_id]
    assert told[0]["messages"][1]["thumb"] == "up"
    assert told[0]["messages"][1]["comment"] == "well said"


def test_conversations_are_found_renamed_rated_exported_and_deleted(log_in: Any, accounts: Accounts) -> None:
    chat = log_in("bob")
    chat.page.locator("#chat-input").wait_for()
    ask(chat, "Who are you?")
    expect(chat.page).to_have_url(THREAD)
    thread_id = chat.page.url.rpartition("/")[2]

    message = chat.page.locator(".ai-message").last
    message.locator(".positive-feedback-off").click()
    chat.page.get_by_role("dialog").locator("textarea").fill("well said")
    chat.page.locator("#submit-feedback").click()
    message.locator(".positive-feedback-on").wait_for()

    entry = chat.page.locator("#thread-history li").filter(has_text="Who are you?")
    entry.hover()
    entry.locator("#thread-options").click()
    chat.page.locator("#rename-thread").click()
    chat.page.get_by_role("dialog").locator("#name").fill("An introduction")
    chat.page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    chat.page.locator("#thread-history").get_by_text("An introduction").wait_for()

    chat.page.locator("#search-chats-button").click()
    search = chat.page.get_by_role("dialog")
    search.locator("input").fill("are YOU")
    expect(search.get_by_role("option")).to_have_text(["An introduction"])
    chat.screenshot("history-search")
    search.locator("input").fill("something else")
    expect(search.get_by_role("option")).to_have_count(0)
    chat.page.keyboard.press("Escape")

    chat.page.reload()
    message.locator(".positive-feedback-on").wait_for()
    export(chat, thread_id)
    chat.page.get_by_role("link", name="Back to the chat").click()
    entry = chat.page.locator("#thread-history li").filter(has_text="An introduction")
    entry.hover()
    entry.locator("#thread-options").click()
    chat.page.locator("#delete-thread").click()
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Confirm").click()
    expect(chat.page.locator("#thread-history").get_by_text("An introduction")).to_have_count(0)
    with contextlib.closing(sqlite3.connect(accounts.folder / "history.sqlite")) as file:
        assert file.execute("SELECT count(*) FROM steps WHERE thread_id = ?", [thread_id]).fetchone() == (0,)
        assert file.execute("SELECT count(*) FROM feedback WHERE comment = 'well said'").fetchone() == (0,)


def test_a_reload_in_the_middle_takes_over_the_answer_and_a_stopped_one_stays_marked(log_in: Any) -> None:
    chat = log_in("carol")
    chat.page.locator("#chat-input").wait_for()
    chat.ask(COUNTING)
    expect(chat.page.locator(".ai-message").last).to_contain_text("1、2、3、")
    reload(chat)
    chat.page.get_by_role("button", name=REGENERATE).wait_for()
    assert "199、200" in chat.answer
    assert chat.answer.count("1、2、3、") == 1
    chat.stop_at("1、2、3、")
    chat.page.get_by_role("button", name=REGENERATE).click()
    chat.page.get_by_text("Stopped").wait_for()
    chat.page.get_by_role("button", name=REGENERATE).wait_for()
    assert "Stopped" in chat.answer
    reload(chat)
    assert "Stopped" in chat.answer
    assert "200" not in chat.answer
    chat.screenshot("history-stopped")


def test_the_login_page_fits_a_phone(log_in: Any) -> None:
    chat = log_in("alice", width=WIDTHS["phone"])
    chat.page.locator("#chat-input").wait_for()
    assert chat.page.evaluate("document.documentElement.scrollWidth") == WIDTHS["phone"]
    chat.screenshot("login-phone")


def test_nobody_gets_in_around_the_login(accounts: Accounts) -> None:
    with httpx.Client(base_url=accounts.url, trust_env=False) as client:
        for method, path in (("GET", "/project/settings"), ("POST", "/project/threads"), ("GET", "/user")):
            assert client.request(method, path, json={}).status_code == 401, path
        assert client.get("/history/export").headers["location"] == "/"
