"""A real browser, and a chat page whose gateway fails on demand.

`stack` of the root conftest is the real stack; `faulty_chat` is the real page before a scripted gateway.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.faulty_gateway import FaultyGateway
from tests.conftest import ROOT, clean_environment, free_ports

ARTIFACTS = ROOT / "tests/artifacts"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDTHS = {"desk": 1280, "phone": 390}
REGENERATE = re.compile("重新生成|Regenerate")
TIMEOUT_MS = 60_000  # a page takes seconds to open on a machine that does other things

# Chromium's offline mode leaves open websockets open: a test closes them itself.
# What the page's own policy forbids it is told to the page alone.
REMEMBER = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
window.openSockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...args) { super(...args); window.openSockets.push(this); }
  // Engine.IO's word for "from now on this way": until then it tries the socket, and speaks by requests.
  send(data) { super.send(data); this.isTheWay ||= data === "5"; }
};
"""
# Clicks Stop as soon as the page shows these words: a click from outside the browser may come after the last word of
# an answer that takes a second or two.
STOP_AT = """words => new MutationObserver((_, watch) => {
  const answer = [...document.querySelectorAll(".ai-message")].at(-1)
  const stop = document.querySelector("#stop-button")
  if (stop && answer && answer.textContent.includes(words)) { watch.disconnect(); stop.click() }
}).observe(document.body, { subtree: true, childList: true, characterData: true })"""


@dataclass
class ChatPage:
    """An open chat page and everything it asked the network for."""

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def stop_at(self, words: str) -> None:
        """Have Stop clicked as soon as an answer shows these words."""
        self.page.evaluate(STOP_AT, words)

    def ask(self, question: str) -> None:
        """Type a question as a person does and send it."""
        self.page.locator("#chat-input").fill(question)
        self.page.locator("#chat-submit:enabled").wait_for()
        self.page.keyboard.press("Enter")

    def ask_and_wait(self, question: str) -> None:
        """Ask, and wait for the whole answer: the buttons of the one before stay until the question has arrived."""
        before = self.page.locator(".ai-message").count()
        self.ask(question)
        self.page.locator(".ai-message").nth(before).get_by_role("button", name=REGENERATE).wait_for()
        self.wait_until_idle()

    @property
    def answer(self) -> str:
        """Text of the newest answer, without its buttons and notes' marks."""
        return self.page.locator(".ai-message .message-content").last.inner_text()

    def cut_connection(self) -> None:
        """Close the page's websocket under it."""
        self.page.evaluate("window.openSockets.forEach((socket) => socket.close())")
        wait_until(lambda: not self.is_connected())

    def is_connected(self) -> bool:
        """Whether the page's newest websocket is open, and its way to the server."""
        newest = "window.openSockets.at(-1)"
        return bool(self.page.evaluate(f"{newest}?.readyState === WebSocket.OPEN && !!{newest}.isTheWay"))

    def wait_until_idle(self) -> None:
        """Wait until no answer is under way."""
        self.page.locator("#stop-button").wait_for(state="detached", timeout=TIMEOUT_MS)

    @property
    def violations(self) -> list[str]:
        """What the page tried and its content security policy forbade."""
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def screenshot(self, name: str) -> Path:
        """Keep a picture of the page for a person to look at."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    def foreign_requests(self) -> list[str]:
        """Requests that left the site."""
        own = {urlsplit(self.url).netloc, ""}
        return [url for url in self.requests if urlsplit(url).netloc not in own]


OpenChat = Callable[..., ChatPage]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for one module: while Playwright is open its loop runs in this thread, and no async test can."""
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_chat(browser: Browser) -> Iterator[OpenChat]:
    """Open pages in contexts of their own: `open_chat(url, language=…, width=…)`."""
    contexts = []

    def open_page(url: str, *, language: str = "zh-CN", width: int = WIDTHS["desk"], dark: bool = False) -> ChatPage:
        context = browser.new_context(
            locale=language,
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
            ignore_https_errors=True,  # certificates of the tests' own
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(REMEMBER)
        contexts.append(context)
        chat = ChatPage(context.new_page(), url)
        chat.page.on("request", lambda request: chat.requests.append(request.url))
        chat.page.on(
            "response",
            lambda response: chat.failures.append(f"{response.status} {response.url}") if not response.ok else None,
        )
        chat.page.on("pageerror", lambda error: chat.complaints.append(str(error)))
        chat.page.on(
            "console", lambda message: chat.complaints.append(message.text) if message.type == "error" else None
        )
        chat.page.goto(url)
        chat.page.locator("#chat-input").wait_for()
        chat.page.locator("#starters button:enabled").first.wait_for()
        return chat

    yield open_page
    for context in contexts:
        context.close()


@dataclass
class FaultyChat:
    """The real page before a gateway that fails on demand, and that can be taken away and brought back."""

    url: str
    gateway: FaultyGateway
    gateway_port: int
    folder: Path
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def start_gateway(self) -> None:
        """Listen at the gateway's address."""
        configuration = uvicorn.Config(
            self.gateway.application(), port=self.gateway_port, log_level="error", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(configuration)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        wait_until(lambda: self._server is not None and self._server.started)

    def stop_gateway(self) -> None:
        """Refuse connections from now on."""
        if self._server and self._thread:
            self._server.should_exit = True
            self._thread.join(10)
            self._server = self._thread = None


@pytest.fixture(scope="session")
def faulty_chat_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyChat]:
    ports = free_ports(["GATEWAY", "CHAT_UI"])
    folder = tmp_path_factory.mktemp("chat-ui")
    environment = clean_environment(
        CHAT_UI_PORT=str(ports["CHAT_UI"]),
        CHAT_UI_GATEWAY_URL=f"http://127.0.0.1:{ports['GATEWAY']}",
        CHAT_UI_DATA_DIR=str(folder),
        CHAT_UI_DISCONNECT_GRACE_SECONDS="3",
        CHAT_UI_MAX_MESSAGE_CHARACTERS="2000",
        TMPDIR=str(folder),
    )
    log = tmp_path_factory.mktemp("log") / "chat-ui.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "chat_ui"], env=environment, cwd="/", stdout=output, stderr=output, text=True
        ) as process,
    ):
        try:
            wait_until(lambda: "chat page on" in log.read_text(), timeout_seconds=90)
            yield FaultyChat(f"http://127.0.0.1:{ports['CHAT_UI']}", FaultyGateway(), ports["GATEWAY"], folder)
        finally:
            process.terminate()
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def faulty_chat(faulty_chat_process: FaultyChat) -> Iterator[FaultyChat]:
    """A fresh gateway before the one page."""
    faulty_chat_process.gateway = FaultyGateway()
    faulty_chat_process.start_gateway()
    yield faulty_chat_process
    faulty_chat_process.stop_gateway()


def wait_until(condition: Callable[[], bool], timeout_seconds: float = 20) -> None:
    """Wait for something that happens in another process and sends no event here."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
