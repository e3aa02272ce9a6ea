"""The login as people meet it, through nginx: by a real OpenID Connect provider, by password over HTTP/2, its look."""
# ruff: noqa: S105, S106

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from ops.accounts import set_password
from tests.browser.conftest import REMEMBER, TIMEOUT_MS, WIDTHS, ChatPage, wait_until
from tests.browser.test_look import assert_accessible
from tests.browser.test_two_people import running
from tests.conftest import free_ports
from tests.edge.server import Edge
from tests.fakes.provider import Provider, running_provider

pytestmark = [pytest.mark.browser, pytest.mark.edge]

ANSWER = "你好, world 🔥"
PASSWORD = "correct horse"
START_TIMEOUT_SECONDS = 120
TRIES = 12
# How the page is reached, and below which path.
PLAIN = {"NGINX_TLS": "off", "NGINX_BASE_PATH": ""}
TLS_BELOW_A_PATH = {"NGINX_TLS": "self-signed", "NGINX_BASE_PATH": "/ernie"}
SAID = {
    "oauthDenied": {"zh-CN": "您没有在登录服务处授权。", "en-US": "You did not allow the login"},
    "oauthNotAllowed": {"zh-CN": "此账号无权使用本页面", "en-US": "This account may not use this page."},
    "oauthProvider": {"zh-CN": "登录服务暂时无法使用", "en-US": "The sign-in service could not be used."},
}
CHOOSE = {"zh-CN": "使用 Example 登录", "en-US": "Log in with Example"}

Visit = Callable[..., ChatPage]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open the login page in a browser of its own: `visit(url, language=…, width=…, dark=…)`."""
    contexts = []

    def open_page(url: str, *, language: str = "en-US", width: int = WIDTHS["desk"], dark: bool = False) -> ChatPage:
        context = browser.new_context(
            locale=language,
            viewport={"width": width, "height": 844},
            color_scheme="dark" if dark else "light",
            ignore_https_errors=True,  # a certificate of the tests' own
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(REMEMBER)
        # The provider's page loads a style sheet from elsewhere, and waits for it where that cannot be reached.
        context.route("**/pico.min.css", lambda route: route.abort())
        contexts.append(context)
        chat = ChatPage(context.new_page(), url)
        chat.page.on("request", lambda request: chat.requests.append(request.url))
        chat.page.goto(url)
        chat.page.locator("form button").first.wait_for()
        return chat

    yield open_page
    for context in contexts:
        context.close()


@dataclass
class Site:
    """The page's address, and the provider that lets people in."""

    url: str
    provider: Provider
    log: Path


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        provider.add_person("alice", email="alice@example.org", email_verified=True)
        provider.add_person("eve", email="eve@example.com", email_verified=True)
        yield provider


@pytest.fixture(scope="module", params=[PLAIN, TLS_BELOW_A_PATH], ids=["plain", "tls-below-a-path"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[Site]:
    """nginx, page and gateway as they are; the engine is the fake."""
    folder = tmp_path_factory.mktemp("site")
    edge = Edge(folder / "nginx", **request.param)
    url = edge.url + request.param["NGINX_BASE_PATH"]
    client = provider.register(f"{url}/auth/oauth/example/callback")
    (folder / "oauth").write_text(client.lines("example"))
    page = {
        "CHAT_UI_PORT": str(edge.chat_port),
        "CHAT_UI_BASE_PATH": request.param["NGINX_BASE_PATH"],
        "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{edge.gateway_port}",
        "CHAT_UI_DATA_DIR": str(folder),
        "CHAT_UI_LOGIN": "oauth",
        "CHAT_UI_OAUTH_FILE": str(folder / "oauth"),
        "CHAT_UI_OAUTH_ALLOWED": "@example.org",
        "TMPDIR": str(folder),
    }
    edge.start()
    with running(folder, "tests.fakes.lab", "engine", "--port", "0", "--control-port", "0") as engine:
        wait_until(lambda: "\n" in engine.read_text(), START_TIMEOUT_SECONDS)
        upstream = f"http://127.0.0.1:{json.loads(engine.read_text().splitlines()[0])['port']}"
        with (
            running(folder, "gateway", GATEWAY_UPSTREAMS=upstream, GATEWAY_PORT=str(edge.gateway_port)),
            running(folder, "chat_ui", **page) as log,
        ):
            wait_until(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            verify = edge.trust() if url.startswith("https") else True
            with httpx.Client(verify=verify, trust_env=False) as asker:
                wait_until(lambda: asker.get(f"{url}/readyz").is_success, START_TIMEOUT_SECONDS)
            yield Site(f"{url}/", provider, log)
    assert edge.stop() == 0


def agree(page: Page, person: str) -> None:
    """Log in at the provider as somebody it knows, and let it tell the page."""
    page.get_by_placeholder("sub").fill(person)
    page.get_by_role("button", name="Authorize", exact=True).click()


def test_a_person_of_a_provider_comes_in_finds_what_was_said_and_goes(site: Site, visit: Visit) -> None:
    chat = visit(site.url)
    page = chat.page
    expect(page).to_have_url(f"{site.url}login")
    page.get_by_role("button", name=CHOOSE["en-US"]).click()
    agree(page, "alice")
    page.locator("#chat-input").wait_for()
    expect(page).to_have_url(site.url)
    chat.ask("Who are you?")
    page.get_by_role("button", name="Regenerate").wait_for()
    assert chat.answer.strip() == ANSWER
    page.reload()
    page.locator("#thread-history").get_by_text("Who are you?").wait_for()
    page.locator("#user-nav-button").click()
    expect(page.get_by_text("alice@example.org")).to_be_visible()
    page.get_by_role("menuitem", name="Logout").click()
    page.get_by_role("button", name=CHOOSE["en-US"]).wait_for()
    assert page.request.get(f"{site.url}user").status == 401
    # Another day.
    page.get_by_role("button", name=CHOOSE["en-US"]).click()
    agree(page, "alice")
    page.locator("#thread-history").get_by_text("Who are you?").first.click()
    page.locator(".ai-message").first.wait_for()
    assert chat.answer.strip() == ANSWER
    assert chat.violations == []


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_who_does_not_come_in_reads_why_and_may_try_again(site: Site, visit: Visit, language: str) -> None:
    chat = visit(site.url, language=language, width=WIDTHS["phone"])
    page = chat.page
    page.get_by_role("button", name=CHOOSE[language]).click()
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("alert")).to_contain_text(SAID["oauthDenied"][language])
    chat.screenshot(f"login-denied-{language}")
    page.get_by_role("button", name=CHOOSE[language]).click()
    agree(page, "eve")
    expect(page.get_by_role("alert")).to_contain_text(SAID["oauthNotAllowed"][language])
    assert page.request.get(f"{site.url}user").status == 401


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_a_wrong_client_secret_is_no_fault_of_the_persons(
    provider: Provider, visit: Visit, tmp_path: Path, language: str
) -> None:
    port = free_ports(["CHAT_UI_PORT"])["CHAT_UI_PORT"]
    url = f"http://127.0.0.1:{port}"
    client = provider.register(f"{url}/auth/oauth/example/callback")
    (tmp_path / "oauth").write_text(client.lines("example", secret="no-secret-of-mine"))
    settings = {
        "CHAT_UI_PORT": str(port),
        "CHAT_UI_LOGIN": "oauth",
        "CHAT_UI_OAUTH_FILE": str(tmp_path / "oauth"),
        "TMPDIR": str(tmp_path),
    }
    with running(tmp_path, "chat_ui", **settings) as log:
        wait_until(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
        page = visit(url, language=language).page
        page.get_by_role("button", name=CHOOSE[language]).click()
        agree(page, "alice")
        expect(page.get_by_role("alert")).to_contain_text(SAID["oauthProvider"][language])
        assert page.request.get(f"{url}/user").status == 401
        wait_until(lambda: "answers 401, 'invalid_client'" in log.read_text())


@contextlib.contextmanager
def open_door(folder: Path) -> Iterator[tuple[str, contextlib.ExitStack]]:
    """Serve a page with accounts behind HTTP/2; gives its address, and what takes the page away when it is closed."""
    set_password(folder / "people", "alice", PASSWORD)
    edge = Edge(folder / "nginx", NGINX_TLS="self-signed")
    settings = {
        "CHAT_UI_PORT": str(edge.chat_port),
        "CHAT_UI_LOGIN": "password",
        "CHAT_UI_ACCOUNTS_FILE": str(folder / "people"),
        "TMPDIR": str(folder),
    }
    edge.start()
    try:
        with contextlib.ExitStack() as page:
            log = page.enter_context(running(folder, "chat_ui", **settings))
            wait_until(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            yield f"{edge.url}/", page
    finally:
        assert edge.stop() == 0


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with open_door(tmp_path_factory.mktemp("door")) as (url, _):
        yield url


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_login_keeps_nobody_out_and_fits(door: str, visit: Visit, width: int, *, dark: bool) -> None:
    chat = visit(door, language="zh-CN", width=width, dark=dark)
    page = chat.page
    picture = page.locator(".login-picture")
    if width == WIDTHS["desk"]:
        expect(picture).to_be_visible()
        picture.evaluate("(image) => image.decode()")  # once it is there; raises if it cannot be shown
    kind = f"{'dark' if dark else 'light'}-{width}"
    chat.screenshot(f"login-look-{kind}")
    assert_accessible(page, "login")
    # What a phone and a password manager do with the fields.
    for label, purpose in (("用户名", "username"), ("密码", "current-password")):
        field = page.get_by_label(label, exact=True)
        expect(field).to_have_attribute("autocomplete", purpose)
        expect(field).to_have_attribute("autocapitalize", "none")
    expect(page.get_by_role("link", name="跳到输入框")).to_have_count(0)
    page.get_by_label("用户名").fill("alice")
    page.keyboard.press("Enter")
    # The browser itself says what is missing.
    assert page.get_by_label("密码", exact=True).evaluate("(field) => field.validity.valueMissing && field.required")
    expect(page.get_by_label("密码", exact=True)).to_be_focused()
    page.get_by_label("密码", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("用户名或密码不正确。")
    # And nothing of it in the language of machines.
    expect(page.get_by_text("credentialssignin")).to_be_hidden()
    chat.screenshot(f"login-look-wrong-{kind}")
    assert_accessible(page, "wrong password")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert chat.foreign_requests() == []


def try_password(page: Page, password: str) -> int:
    """Give a password for alice and return the status of the answer."""
    page.locator("#email").fill("alice")
    page.locator("#password").fill(password)
    with page.expect_response(lambda response: response.request.method == "POST") as answer:
        page.keyboard.press("Enter")
    return answer.value.status


def test_a_failed_login_says_why_over_http_2(tmp_path: Path, visit: Visit) -> None:
    with open_door(tmp_path) as (url, server):
        page = visit(url).page
        assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
        alert = page.get_by_role("alert")
        try_password(page, "wrong")
        expect(alert).to_have_text("Wrong name or password.")
        # Each further one doubles the wait: a slow machine, too, is held up at last.
        for _ in range(TRIES):
            if (answer := try_password(page, "wrong")) == 429:
                break
        assert answer == 429
        expect(alert).to_have_text("Too many wrong passwords: try again in a while.")
        seconds = alert.locator("p").evaluate("(text) => getComputedStyle(text, '::after').content")
        assert re.fullmatch(r'" \(\d+ s\)"', seconds)
        server.close()
        try_password(page, PASSWORD)
        expect(alert).to_have_text("The page does not answer at the moment. Try again in a while.")
