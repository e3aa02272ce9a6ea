"""What a person types stays in the message box, whatever the page does meanwhile."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import FaultyChat, OpenChat, wait_until

pytestmark = pytest.mark.browser

THREAD = re.compile(r"/thread/[0-9a-f-]{36}$")
# The list of conversations comes when the next question is half written.
SLOW_LIST = """
const fetch = window.fetch;
window.slowLists = 0;
window.fetch = async (...request) => {
  if (String(request[0]).includes('/project/threads')) {
    await new Promise((resolve) => setTimeout(resolve, 3000));
    window.slowLists += 1;
  }
  return fetch(...request);
};
"""


def test_next_question_is_not_lost_when_the_list_of_conversations_comes(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    chat.page.evaluate(SLOW_LIST)
    chat.ask("one")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said one.")
    chat.wait_until_idle()
    expect(chat.page).to_have_url(THREAD)
    chat.page.locator("#chat-input").fill("half a quest")
    wait_until(lambda: bool(chat.page.evaluate("window.slowLists > 0")))
    expect(chat.page.locator("#thread-history").get_by_text("one")).to_be_visible()
    chat.page.locator("#chat-input").press_sequentially("ion")
    chat.page.keyboard.press("Enter")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said half a question.")
    address = chat.page.url
    chat.page.locator("#new-chat-button").click()
    expect(chat.page.locator(".ai-message")).to_have_count(0)
    chat.ask("two")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said two.")
    expect(chat.page).to_have_url(THREAD)
    assert chat.page.url != address
    assert [len(prompt) for prompt in faulty_chat.gateway.prompts] == [1, 3, 1]
