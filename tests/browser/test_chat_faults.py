"""What a person sees when something fails, and how they get on: the real page before a gateway that fails on demand."""
# ruff: noqa: RUF001

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import TIMEOUT_MS, WIDTHS, FaultyChat, OpenChat, wait_until
from tests.browser.faulty_gateway import MODEL

pytestmark = pytest.mark.browser

ANSWER = r"""## 标题 👋

有 key:value、12:30、$5 and $10、\(a^2+b^2=c^2\)、$e^{i\pi}=-1$、`a:b`、3~5 天和 7~9 天。

\[
E = mc^2
\]

$$\sum_{k=1}^n k = \frac{n(n+1)}{2}$$

| 服务 | 端口 |
|---|---|
| nginx | 8080 |

```python
print("a:b", "$5")
```

![x](http://foreign.example/x.png)
"""


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_markdown_shows_what_was_written(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int, *, dark: bool
) -> None:
    faulty_chat.gateway.answer = ANSWER
    chat = open_chat(faulty_chat.url, width=width, dark=dark)
    kind = f"{'dark' if dark else 'light'}-{width}"
    chat.screenshot(f"welcome-{kind}")
    chat.ask("show")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    for text in ("key:value、12:30、$5 and $10、", "3~5 天和 7~9 天", 'print("a:b", "$5")'):
        assert text in chat.answer
    assert chat.page.locator(".ai-message .katex").count() == 4
    assert chat.page.locator(".ai-message .katex-display").count() == 2
    assert chat.page.locator(".ai-message table td").all_inner_texts() == ["nginx", "8080"]
    assert chat.page.evaluate("document.fonts.check('16px KaTeX_Main')")
    assert chat.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    chat.screenshot(f"markdown-{kind}")
    assert chat.foreign_requests() == []
    assert chat.complaints == []


FAULTS = {
    "busy": (r"提问太频繁了。请在 \d 秒后重试。", r"You are asking too fast. Try again in \d s."),
    "loading": (r"模型正在加载或重启，暂时不能回答。请在 \d 秒后重试。", r"Try again in \d s."),
    "refuse": ("请求被拒绝：temperature must be at most 2", "refused: temperature must be at most 2"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_refusal_is_explained_in_the_persons_language(
    faulty_chat: FaultyChat, open_chat: OpenChat, fault: str, language: str
) -> None:
    chat = open_chat(faulty_chat.url, language=language)
    chat.ask(fault)
    chat.page.get_by_role("button", name="重试" if language == "zh-CN" else "Retry").wait_for()
    assert re.search(FAULTS[fault][language == "en-US"], chat.answer)
    assert faulty_chat.gateway.headers[0]["x-request-id"] in chat.answer
    assert len(faulty_chat.gateway.prompts) == 1
    chat.screenshot(f"fault-{fault}-{language}")


@pytest.mark.parametrize("fault", ["cut", "fail"])
def test_broken_stream_keeps_its_words_marked_and_can_be_retried(
    faulty_chat: FaultyChat, open_chat: OpenChat, fault: str
) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask(fault)
    retry = chat.page.get_by_role("button", name="重试")
    retry.wait_for()
    assert f"You said {fault}." in chat.answer
    assert "以上回答不完整" in chat.answer
    chat.screenshot(f"fault-{fault}")
    retry.click()
    wait_until(lambda: len(faulty_chat.gateway.prompts) == 2)
    retry.wait_for()
    assert chat.page.locator(".ai-message").count() == 1
    chat.ask("next")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert faulty_chat.gateway.prompts[-1] == [{"role": "user", "content": "next"}]


def test_gateway_that_is_gone_is_named_and_retry_works_when_it_is_back(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    expect(chat.page.get_by_role("button", name=MODEL)).to_be_visible()
    faulty_chat.stop_gateway()
    chat.ask("你好")
    retry = chat.page.get_by_role("button", name="重试")
    retry.wait_for()
    assert "无法连接模型服务" in chat.answer
    chat.screenshot("fault-gone")
    faulty_chat.start_gateway()
    retry.click()
    expect(chat.page.locator(".ai-message")).to_contain_text(["You said 你好."])


def test_stop_keeps_the_words_and_frees_the_engine(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("endless")
    expect(chat.page.locator(".ai-message").last).to_contain_text("word word word")
    chat.page.locator("#stop-button").click()
    wait_until(lambda: faulty_chat.gateway.open_streams == 0, timeout_seconds=1)
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert chat.answer.startswith("word word word")
    assert "已停止" in chat.answer
    assert "manually stopped" not in chat.page.inner_text("body")
    chat.screenshot("stopped")
    chat.ask("next")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said next.")
    roles = [message["role"] for message in faulty_chat.gateway.prompts[-1]]
    assert roles == ["user", "assistant", "user"]
    assert faulty_chat.gateway.prompts[-1][1]["content"].startswith("word word")
    assert "已停止" not in faulty_chat.gateway.prompts[-1][1]["content"]


def test_stop_works_while_an_edited_message_is_answered(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    for question in ("one", "two"):
        chat.ask(question)
        expect(chat.page.locator(".ai-message").last).to_contain_text(f"You said {question}.")
        chat.wait_until_idle()
    first = chat.page.locator("[data-step-type=user_message]").first
    first.hover()
    first.locator(".edit-message").click()
    chat.page.locator("#edit-chat-input").fill("endless")
    chat.page.locator(".confirm-edit").click()
    expect(chat.page.locator(".ai-message").last).to_contain_text("word word")
    chat.page.locator("#stop-button").click()
    wait_until(lambda: faulty_chat.gateway.open_streams == 0, timeout_seconds=1)
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert faulty_chat.gateway.prompts[-1] == [{"role": "user", "content": "endless"}]
    assert chat.page.locator(".ai-message").count() == 1


def test_regenerate_replaces_the_answer(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("one")
    again = chat.page.get_by_role("button", name="重新生成")
    again.wait_for()
    faulty_chat.gateway.answer = "Another answer."
    again.click()
    expect(chat.page.locator(".ai-message")).to_contain_text(["Another answer."])
    again.wait_for()
    assert chat.page.locator(".ai-message").count() == 1
    assert faulty_chat.gateway.prompts == [[{"role": "user", "content": "one"}]] * 2


def test_closed_tab_frees_the_engine_after_the_grace(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("endless")
    expect(chat.page.locator(".ai-message").last).to_contain_text("word word")
    chat.page.close()
    wait_until(lambda: faulty_chat.gateway.aborted_streams == 1, timeout_seconds=6)


def test_lost_connection_within_the_grace_loses_no_word(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.ask("endless")
    message = chat.page.locator(".ai-message").last
    expect(message).to_contain_text("word word")
    chat.cut_connection()
    wait_until(chat.is_connected)
    length = len(chat.answer)
    wait_until(lambda: len(chat.answer) > length)
    chat.page.locator("#stop-button").click()
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert re.fullmatch(r"(word ?)+\s*已停止.*", chat.answer.strip(), re.DOTALL)
    chat.ask("next")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said next.")
    shown = faulty_chat.gateway.prompts[-1][1]["content"]
    assert chat.page.locator(".ai-message .message-content").first.inner_text().startswith(shown.strip())


def test_message_above_the_limit_is_refused_with_both_numbers(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.page.locator("#chat-input").fill("长" * 400_000)
    chat.page.keyboard.press("Enter")
    error = chat.page.get_by_text(re.compile("消息过长：共 400000 个字符，最多 2000 个"))
    error.wait_for(timeout=TIMEOUT_MS)
    chat.wait_until_idle()
    chat.ask("next")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    assert faulty_chat.gateway.prompts == [[{"role": "user", "content": "next"}]]


def test_old_turns_are_dropped_when_the_engine_finds_them_too_long(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    for question in ("one", "two", "too long"):
        chat.ask(question)
        expect(chat.page.locator(".ai-message").last).to_contain_text(f"You said {question}.")
        chat.wait_until_idle()
    assert [len(prompt) for prompt in faulty_chat.gateway.prompts] == [1, 3, 5, 3, 1]
    assert "较早的内容（2 轮）不再发送给模型" in chat.answer
    chat.ask("more")
    expect(chat.page.locator(".ai-message").last).to_contain_text("You said more.")
    chat.wait_until_idle()
    assert "不再发送" not in chat.answer


def test_copied_answer_has_no_marks_of_the_page(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    faulty_chat.gateway.answer = "key:value for $5\n\n```sh\necho \\$5 a\\:b\n```"
    chat = open_chat(faulty_chat.url)
    chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.ask("one")
    chat.page.get_by_role("button", name="重新生成").wait_for()
    chat.page.locator(".ai-message button:has(svg.lucide-copy)").last.click()
    chat.page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    copied = chat.page.evaluate("navigator.clipboard.readText()")
    assert copied.replace("\r\n", "\n") == faulty_chat.gateway.answer
