"""The status page in a browser: what it shows, in two languages, on two widths, and that it asks nobody else."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import ARTIFACTS, TIMEOUT_MS, WIDTHS
from tests.conftest import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]

READY = {"zh-CN": "可以提问", "en-US": "Takes questions"}


def opened(browser: Browser, url: str, *, language: str = "zh-CN", width: str = "desk", dark: bool = False) -> Page:
    page = browser.new_context(
        locale=language,
        viewport={"width": WIDTHS[width], "height": 844},
        color_scheme="dark" if dark else "light",
    ).new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(url)
    page.locator("#engines .card").first.wait_for()
    return page


@pytest.fixture(scope="module")
def address(stack: Stack) -> str:
    return f"http://127.0.0.1:{stack.ports['GATEWAY_PORT']}/status"


@pytest.mark.parametrize(
    ("language", "width", "dark"),
    [
        ("zh-CN", "desk", False),
        ("en-US", "phone", True),
        ("zh-CN", "phone", False),
        ("en-US", "desk", True),
    ],
)
def test_it_shows_how_things_stand(browser: Browser, address: str, language: str, width: str, dark: bool) -> None:
    page = opened(browser, address, language=language, width=width, dark=dark)
    expect(page.locator("#verdict")).to_have_text(READY[language])
    expect(page.locator("#engines")).to_contain_text("ernie-demo")
    expect(page.locator("#tiles svg")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], "it fits the width"
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"status-{width}-{language}-{'dark' if dark else 'light'}.png", full_page=True)
    page.context.close()


def test_it_asks_nobody_else_and_the_browser_complains_of_nothing(browser: Browser, address: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.locator("#engines .card").first.wait_for()
    own = address.removesuffix("/status")
    assert {url.removeprefix(own) for url in asked if not url.startswith("data:")} == {
        "/status",
        "/status/page.css",
        "/status/page.js",
        "/status/figures",
    }
    assert complaints == []
    page.close()


def test_the_language_is_changed_by_a_button(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.get_by_role("button", name="English").click()
    expect(page.locator("h2").first).to_have_text("Engines")
    assert page.evaluate("document.documentElement.lang") == "en"
    page.get_by_role("button", name="中文").click()
    expect(page.locator("h2").first).to_have_text("引擎")
    page.context.close()


def test_it_goes_on_by_itself_and_says_when_nobody_answers(browser: Browser, address: str) -> None:
    page = opened(browser, address, language="en-US")
    with page.expect_response(lambda response: response.url.endswith("/status/figures")):
        """The next look, which nobody asked for."""
    page.route("**/status/figures", lambda route: route.abort())
    expect(page.locator("#verdict")).to_have_text("The gateway does not answer", timeout=TIMEOUT_MS)
    page.unroute("**/status/figures")
    expect(page.locator("#verdict")).to_have_text("Takes questions", timeout=TIMEOUT_MS)
    page.context.close()


def test_a_cards_memory_is_shown_where_there_is_a_card(browser: Browser, address: str) -> None:
    """The stack of the tests has none: the real figures get one on their way to the page."""
    page = browser.new_context(locale="zh-CN", viewport={"width": WIDTHS["phone"], "height": 844}).new_page()
    page.set_default_timeout(TIMEOUT_MS)

    def add_card(route: Route) -> None:
        figures = route.fetch().json()
        assert figures["cards"] == []
        used = [None, 20_000_000_000, 61_300_000_000]
        card = {"name": "NVIDIA H200", "used_bytes": used[-1], "total_bytes": 150_754_820_096, "samples": used}
        route.fulfill(json={**figures, "cards": [card]})

    page.route("**/status/figures", add_card)
    page.goto(address)
    tile = page.locator("#tiles .card", has_text="显存 · NVIDIA H200")
    expect(tile).to_contain_text("61.3/ 150.8 GB")
    # To the top of what the card has, not of what was used: 61.3 of 150.8 stands at two fifths of the height.
    line = tile.locator("svg path:not(.area)").get_attribute("d")
    assert line is not None
    assert line.endswith("120.0 21.6")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"]
    page.screenshot(path=ARTIFACTS / "status-card.png", full_page=True)
    page.context.close()
