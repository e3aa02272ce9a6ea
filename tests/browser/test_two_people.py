"""Two people in two browsers: one who asks too often is told so, and the other notices nothing."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ChatPage, OpenChat, wait_until
from tests.browser.relay import relay
from tests.conftest import ROOT, clean_environment
from tests.edge.server import Edge

pytestmark = [pytest.mark.browser, pytest.mark.edge]

LIMIT = 2
ANSWER = "你好, world 🔥"
OTHER_ADDRESS = "127.0.0.2"
START_TIMEOUT_SECONDS = 30


@contextlib.contextmanager
def running(folder: Path, *module: str, **settings: str) -> Iterator[Path]:
    """Run a Python module of the project; gives its log."""
    log = folder / f"{module[0]}.log"
    command = [sys.executable, "-m", *module]
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, env=clean_environment(**settings), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield log
        finally:
            process.terminate()
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """nginx, page and gateway as they are, with a small limit; the engine is the fake."""
    folder = tmp_path_factory.mktemp("two-people")
    edge = Edge(folder / "nginx")
    key_file = str(folder / "chat-ui-key")
    gateway = {
        "GATEWAY_PORT": str(edge.gateway_port),
        "GATEWAY_RATE_LIMIT_REQUESTS": f"{LIMIT}/minute",
        "GATEWAY_CHAT_UI_KEY_FILE": key_file,
        "GATEWAY_EDGE_URL": edge.url,
    }
    page = {
        "CHAT_UI_PORT": str(edge.chat_port),
        "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{edge.gateway_port}",
        "CHAT_UI_GATEWAY_KEY_FILE": key_file,
        "TMPDIR": str(folder),
    }
    edge.start()
    with running(folder, "tests.fakes.lab", "engine", "--port", "0", "--control-port", "0") as engine:
        wait_until(lambda: "\n" in engine.read_text(), START_TIMEOUT_SECONDS)
        upstream = f"http://127.0.0.1:{json.loads(engine.read_text().splitlines()[0])['port']}"
        with (
            running(folder, "gateway", GATEWAY_UPSTREAMS=upstream, **gateway) as gateway_log,
            running(folder, "chat_ui", **page) as page_log,
        ):
            wait_until(lambda: "chat page on" in page_log.read_text(), START_TIMEOUT_SECONDS)
            wait_until(lambda: httpx.get(f"{edge.url}/readyz", trust_env=False).is_success, START_TIMEOUT_SECONDS)
            yield edge
            assert "edge_disagrees" not in gateway_log.read_text()
    assert edge.stop() == 0


def ask(chat: ChatPage, question: str, button: str) -> str:
    """Ask, wait for the button below the newest answer, and return the answer."""
    before = chat.page.locator(".ai-message").count()
    chat.ask(question)
    chat.page.locator(".ai-message").nth(before).get_by_role("button", name=button).wait_for()
    return chat.answer.strip()


def test_one_who_asks_too_often_blocks_nobody_else(nginx: Edge, open_chat: OpenChat) -> None:
    with relay(nginx.port, OTHER_ADDRESS) as other_way:
        one = open_chat(nginx.url, language="en-US")
        other = open_chat(other_way.url, language="zh-CN")
        assert [ask(one, "你好", "Regenerate") for _ in range(LIMIT)] == [ANSWER] * LIMIT
        refused = ask(one, "你好", "Retry")
        assert "You are asking too fast. Try again in " in refused
        assert ask(other, "你好", "重新生成") == ANSWER
        assert ask(other, "再来", "重新生成") == ANSWER
        assert "提问太频繁了。请在 " in ask(other, "再来", "重试")
        # The next question of the one is held back until it is welcome.
        one.ask("你好")
        expect(one.page.locator(".ai-message").last).to_contain_text("Trying again in ")
        one.screenshot("two-people-limited")
        other.screenshot("two-people-other")
        assert one.foreign_requests() == other.foreign_requests() == []
