"""`python -m tests.browser.pictures http://127.0.0.1:8080`: the README's pictures, of a page that runs.

`make demo` starts one.
"""
# ruff: noqa: RUF001

import sys
from dataclasses import dataclass

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS
from tests.conftest import ROOT

FOLDER = ROOT / "docs/images"
DESK = (1120, 700)
PHONE = (390, 700)
TIMEOUT_MS = 180_000


@dataclass(frozen=True)
class Picture:
    """What is asked, in which language, on which screen; the demo model knows these questions."""

    name: str
    size: tuple[int, int]
    language: str
    questions: tuple[str, ...]
    dark: bool = False


PICTURES = (
    Picture("chat-light", DESK, "zh-CN", ("你好", "怎么启动？")),
    Picture("chat-dark", DESK, "en-US", ("Who are you?",), dark=True),
    Picture("chat-mobile", PHONE, "zh-CN", ("写一首诗。",)),
)


def main(arguments: list[str]) -> int:
    """Make all of them and return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tests.browser.pictures URL\n")
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for picture in PICTURES:
            context = browser.new_context(
                locale=picture.language,
                viewport={"width": picture.size[0], "height": picture.size[1]},
                color_scheme="dark" if picture.dark else "light",
            )
            context.set_default_timeout(TIMEOUT_MS)
            take(context.new_page(), arguments[0], picture)
            context.close()
        browser.close()
    return 0


def take(page: Page, url: str, picture: Picture) -> None:
    """Hold the conversation and keep the picture of it."""
    page.goto(url)
    page.locator("#starters button:enabled").first.wait_for()
    for number, question in enumerate(picture.questions):
        page.locator("#chat-input").fill(question)
        page.locator("#chat-submit:enabled").click()
        page.locator(".ai-message").nth(number).locator("button:has(> .lucide-refresh-cw)").wait_for()
    page.mouse.move(0, 0)
    page.screenshot(path=FOLDER / f"{picture.name}.png", animations="disabled")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
