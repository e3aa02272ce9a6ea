"""What the page looks like and how it is reached: themes, keyboard, screen reader, input method, narrow screens."""
# ruff: noqa: RUF001

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import TIMEOUT_MS, WIDTHS, FaultyChat, OpenChat, wait_until

pytestmark = pytest.mark.browser

ANSWER = r"""大模型逐个预测下一个词元，中文与 English 混排。

有 \(a^2\)、$b^2$，\[c^2\] 和 $$d^2$$ 四种写法。

$$\sum_{n=1}^{\infty}\frac{1}{n^2} + \alpha + \beta + \gamma + \delta + \epsilon + \zeta + \eta + \theta + \iota$$

| 服务 | 端口 | 说明 | 状态 | 地址 | 版本 | 备注 |
|---|---|---|---|---|---|---|
| nginx | 8080 | 唯一对外开放的端口 | 正常 | 127.0.0.1 | 1.26 | 无 |

```bash
curl -fsS http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' -d '{"messages": []}'
```

```
没有语言
```

`a_very_long_name_without_any_place_to_break_it_in_a_line_of_a_phone_screen`
"""

# What axe calls serious or critical keeps somebody out.
KEEPS_OUT = {"serious", "critical"}

AXE = Axe()


# What fades in has little contrast until it is there.
SETTLED = """() => Promise.all(document.getAnimations().filter((a) => a.effect.getTiming().iterations !== Infinity)
  .map((a) => a.finished.catch(() => undefined)))"""


def assert_accessible(page: Page, where: str) -> None:
    page.evaluate(SETTLED)
    violations = [v for v in AXE.run(page).response["violations"] if v["impact"] in KEEPS_OUT]
    found = [(v["id"], node["target"], node["html"][:200]) for v in violations for node in v["nodes"]]
    assert found == [], where


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_keeps_anybody_out(faulty_chat: FaultyChat, open_chat: OpenChat, width: int, *, dark: bool) -> None:
    faulty_chat.gateway.answer = ANSWER
    chat = open_chat(faulty_chat.url, width=width, dark=dark)
    page = chat.page
    # It appears in half a second, and faint colours have little contrast.
    expect(page.locator("#welcome-screen")).to_have_css("opacity", "1")
    assert_accessible(page, "welcome")
    chat.ask_and_wait("show")
    assert_accessible(page, "conversation")
    page.get_by_role("button", name="修改这条消息").click()
    expect(page.get_by_role("textbox", name="修改消息")).to_be_focused()
    assert_accessible(page, "edit")
    page.get_by_role("button", name="取消").click()
    page.get_by_role("button", name="主题").click()
    page.get_by_role("menuitem", name="深色主题").wait_for()
    assert_accessible(page, "themes")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="faulty-model").click()
    page.get_by_role("dialog", name="选择模型").wait_for()
    assert_accessible(page, "models")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="设置").click()
    page.get_by_role("slider", name="温度").wait_for()
    assert_accessible(page, "settings")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="说明").click()
    page.get_by_role("dialog", name="说明").wait_for()
    assert_accessible(page, "readme")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="新建对话").click()
    page.locator("#starters").wait_for()
    chat.ask("busy")
    page.get_by_role("button", name="重试").wait_for()
    assert_accessible(page, "error")


def tab_stops(page: Page) -> list[str]:
    """Press Tab once around the page; return the name of each stop. Every one must show that it has the focus."""
    page.evaluate("document.activeElement.blur()")
    page.get_by_role("link", name="跳到输入框").focus()
    stops: list[str] = []
    while True:
        name, is_shown = page.evaluate(
            """() => {
              const {activeElement: element} = document;
              const box = element.closest('#message-composer') ?? element;
              const styles = [element, box].map((e) => getComputedStyle(e));
              const shown = styles.some((s) => s.boxShadow !== 'none' || s.outlineStyle !== 'none');
              const visible = element.checkVisibility({opacityProperty: true, visibilityProperty: true});
              return [element.ariaLabel ?? element.textContent.trim().slice(0, 20), shown && visible];
            }"""
        )
        if stops and (name == stops[0] or page.evaluate("document.activeElement === document.body")):
            return stops
        assert is_shown, name
        stops.append(name)
        page.keyboard.press("Tab")


def test_everything_is_reached_with_the_keyboard_in_the_order_of_the_page(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    faulty_chat.gateway.answer = ANSWER
    chat = open_chat(faulty_chat.url, width=WIDTHS["phone"])
    chat.ask_and_wait("show")
    stops = tab_stops(chat.page)
    assert stops[:7] == ["跳到输入框", "历史对话", "新建对话", "说明", "导出对话", "主题", "修改这条消息"]
    assert stops[-3:] == ["消息", "设置", "faulty-model"]
    of_the_answer = ["有帮助", "没有帮助", "重新生成"]
    assert [stop for stop in stops if stop in of_the_answer] == of_the_answer
    assert all(stops), "a stop without a name"
    # What is wider than a phone can be scrolled with the arrow keys.
    chat.page.locator("pre code").first.focus()
    chat.page.keyboard.press("ArrowRight")
    wait_until(lambda: bool(chat.page.evaluate("document.activeElement.scrollLeft > 0")))


def test_a_keyboard_skips_the_conversation_and_comes_back_from_a_menu(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    page = chat.page
    page.get_by_role("link", name="跳到输入框").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="消息")).to_be_focused()
    page.get_by_role("button", name="主题").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="浅色主题")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="深色主题")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_class("dark")
    expect(page.get_by_role("button", name="主题")).to_be_focused()
    page.reload()
    expect(page.locator("html")).to_have_class("dark")


def test_screen_reader_hears_that_an_answer_comes_and_then_the_answer(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    faulty_chat.gateway.answer = "第一句，$x^2$。\n\n第二句。"
    chat = open_chat(faulty_chat.url)
    status = chat.page.get_by_role("status").first
    expect(status).to_have_attribute("aria-live", "polite")
    chat.ask("endless")
    expect(status).to_have_text("正在回答")
    chat.page.get_by_role("button", name="停止").press("Enter")
    expect(status).to_contain_text("已停止")
    chat.ask_and_wait("again")
    expect(status).to_contain_text("第二句。")
    assert status.inner_text().count("第一句") == 1


def test_screen_reader_hears_an_answer_that_comes_whole_between_two_frames(
    faulty_chat: FaultyChat, open_chat: OpenChat
) -> None:
    chat = open_chat(faulty_chat.url)
    status = chat.page.get_by_role("status").first
    chat.page.evaluate("window.requestAnimationFrame = (draw) => setTimeout(draw, 2000)")
    for question in "one", "two":
        chat.ask(question)
        expect(status).to_have_text(f"You said {question}.")


def test_enter_of_an_input_method_does_not_send(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    page = chat.page
    page.locator("#chat-input").focus()
    keyboard = page.context.new_cdp_session(page)
    keyboard.send("Input.imeSetComposition", {"text": "nihao", "selectionStart": 5, "selectionEnd": 5})
    page.keyboard.press("Enter")
    keyboard.send("Input.insertText", {"text": "你好"})
    # It was not sent; the key itself got through, as no input method runs here that would swallow it.
    expect(page.locator("#chat-input")).to_have_value(re.compile("你好"))
    page.locator("#chat-input").fill("你好")
    # Safari ends the composition first; its Enter then has the code of an input method and no other mark.
    page.locator("#chat-input").evaluate(
        """(box) => box.dispatchEvent(
          new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, bubbles: true, cancelable: true}))"""
    )
    expect(page.locator("#chat-input")).to_have_value("你好")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="重新生成").wait_for()
    assert [prompt[-1]["content"] for prompt in faulty_chat.gateway.prompts] == ["你好"]


GLYPHS = """(texts) => {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d', {willReadFrequently: true});
  context.font = getComputedStyle(document.querySelector('.ai-message')).font;
  return texts.map((text) => {
    context.clearRect(0, 0, 99, 99);
    context.fillText(text, 10, 40);
    return context.getImageData(0, 0, 99, 99).data.join();
  });
}"""


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_chinese_code_tables_and_mathematics_are_drawn(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int, *, dark: bool
) -> None:
    faulty_chat.gateway.answer = ANSWER
    chat = open_chat(faulty_chat.url, width=width, dark=dark)
    page = chat.page
    chat.ask_and_wait("show")
    # A character without a font is drawn as the same box as one that does not exist.
    drawn = page.evaluate(GLYPHS, ["中", "国", "\uffff"])
    assert len(set(drawn)) == 3
    formulas = page.locator(".ai-message .katex annotation").all_text_contents()
    assert [text.strip() for text in formulas[:4]] == ["a^2", "b^2", "c^2", "d^2"]
    assert page.locator(".ai-message .katex-error").count() == 0
    assert page.locator(".ai-message .katex-display").count() == 3
    assert page.evaluate("document.fonts.check('16px KaTeX_Math') && document.fonts.check('16px KaTeX_Size2')")
    assert page.locator(".ai-message th").count() == 7
    assert page.locator(".ai-message pre .hljs-string").count() >= 2
    # Each wide thing scrolls in itself, the page stays in its width.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("[...document.querySelectorAll('.ai-message')].every((e) => e.scrollWidth <= e.clientWidth)")
    kind = f"{'dark' if dark else 'light'}-{width}"
    chat.screenshot(f"look-end-{kind}")
    page.locator(".ai-message").evaluate("(answer) => answer.scrollIntoView()")
    chat.screenshot(f"look-{kind}")
    assert chat.foreign_requests() == []


def test_name_and_pictures_are_its_own(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    page = chat.page
    assert page.title() == "ERNIE Chat"
    assert page.get_by_role("heading", level=1).inner_text() == "ERNIE Chat"
    expect(page.get_by_role("img", name="ERNIE Chat")).to_be_visible()
    icon = page.locator("link[rel='icon']").get_attribute("href")
    settings: dict[str, Any] = page.request.get(f"{chat.url}/project/settings?language=zh-CN").json()
    for path in (icon, settings["ui"]["login_page_image"]):
        picture = page.request.get(f"{chat.url}{path}")
        assert picture.headers["content-type"].startswith("image/svg+xml")
        assert "linearGradient" in picture.text()


# Whether the middle of an element is in sight, with nothing above it.
IN_SIGHT = """(element) => {
  const {x, y, width, height} = element.getBoundingClientRect();
  return element.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}"""


def assert_in_sight(*elements: Locator) -> None:
    for element in elements:
        wait_until(lambda element=element: bool(element.evaluate(IN_SIGHT)))


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_a_phone_shows_whole_labels(faulty_chat: FaultyChat, open_chat: OpenChat, language: str) -> None:
    page = open_chat(faulty_chat.url, language=language, width=WIDTHS["phone"]).page
    cut = (
        "(labels) => labels.filter((label) => label.scrollWidth > label.clientWidth).map((label) => label.textContent)"
    )
    assert page.locator("#starters p").count() == 6
    assert page.locator("#starters p").evaluate_all(cut) == []
    assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS["phone"]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_all_settings_are_in_sight_and_the_word_that_they_are_saved_hides_no_button(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int
) -> None:
    page = open_chat(faulty_chat.url, width=width).page
    page.get_by_role("button", name="设置").click()
    assert_in_sight(page.get_by_role("switch"), page.get_by_role("button", name="确认"))
    page.get_by_role("button", name="确认").click()
    news = page.get_by_text("设置已保存")
    news.wait_for()
    if width == WIDTHS["desk"]:
        assert_in_sight(*(page.get_by_role("button", name=name, exact=True) for name in ("说明", "主题", "新建对话")))
        assert news.is_visible()


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_state_of_the_engine_hides_neither_buttons_nor_the_question(
    faulty_chat: FaultyChat, open_chat: OpenChat, width: int
) -> None:
    chat = open_chat(faulty_chat.url, width=width)
    page = chat.page
    chat.ask_and_wait("show")
    state = {"type": "engine-state", "text": "模型启动中：启动引擎，大约还需 38 秒", "share": 0.3, "ready": False}
    page.evaluate("(state) => window.postMessage(state)", state)
    page.locator("#engine-state").get_by_text("38 秒").wait_for()
    chat.screenshot(f"look-engine-{width}")
    buttons = [page.get_by_role("button", name=name, exact=True) for name in ("历史对话", "新建对话", "说明", "主题")]
    assert_in_sight(*buttons, page.locator("pre", has_text="show"), page.locator("#engine-state"))


def test_a_phone_shows_the_conversation_that_was_chosen(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url, width=WIDTHS["phone"])
    page = chat.page
    chat.ask_and_wait("第一个问题")
    page.get_by_role("button", name="新建对话").click()
    page.locator("#starters").wait_for()
    chat.ask_and_wait("第二个问题")
    page.get_by_role("button", name="历史对话").click()
    page.get_by_role("button", name="搜索对话").click()
    page.get_by_role("dialog", name="搜索").wait_for()
    assert_accessible(page, "search")
    page.keyboard.press("Escape")
    page.locator("#thread-history").get_by_text("第一个问题").click()
    expect(page.locator("#thread-history")).to_be_hidden()
    assert_in_sight(page.locator("[data-step-type='user_message']").get_by_text("第一个问题"))


def test_a_pasted_file_is_refused_with_a_sentence(faulty_chat: FaultyChat, open_chat: OpenChat) -> None:
    chat = open_chat(faulty_chat.url)
    chat.page.locator("#chat-input").evaluate(
        """(box) => {
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File(['x'], 'picture.png', {type: 'image/png'}));
          box.dispatchEvent(new ClipboardEvent('paste', {clipboardData, bubbles: true, cancelable: true}));
        }"""
    )
    expect(chat.page.get_by_text("picture.png: 这里只能发送文字。")).to_be_visible(timeout=TIMEOUT_MS)
