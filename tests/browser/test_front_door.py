"""The page over HTTPS and below a path: all that it loads comes from there, and its policy forbids none of it."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.browser.conftest import OpenChat, wait_until
from tests.browser.test_two_people import running
from tests.edge.server import Edge

pytestmark = [pytest.mark.browser, pytest.mark.edge]

BASE = "/ernie"
ANSWER = "你好, world 🔥"
START_TIMEOUT_SECONDS = 120


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    edge = Edge(tmp_path_factory.mktemp("front-door") / "nginx", NGINX_TLS="self-signed", NGINX_BASE_PATH=BASE)
    edge.start()
    yield edge
    assert edge.stop() == 0


@pytest.fixture(scope="module")
def address(edge: Edge) -> Iterator[str]:
    """nginx, page and gateway as they are; the engine is the fake."""
    folder = edge.prefix.parent
    page = {
        "CHAT_UI_PORT": str(edge.chat_port),
        "CHAT_UI_BASE_PATH": BASE,
        "CHAT_UI_GATEWAY_URL": f"http://127.0.0.1:{edge.gateway_port}",
        "TMPDIR": str(folder),
    }
    with running(folder, "tests.fakes.lab", "engine", "--port", "0", "--control-port", "0") as engine:
        wait_until(lambda: "\n" in engine.read_text(), START_TIMEOUT_SECONDS)
        upstream = f"http://127.0.0.1:{json.loads(engine.read_text().splitlines()[0])['port']}"
        with (
            running(folder, "gateway", GATEWAY_UPSTREAMS=upstream, GATEWAY_PORT=str(edge.gateway_port)),
            running(folder, "chat_ui", **page) as log,
        ):
            wait_until(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            url = edge.url + BASE
            with httpx.Client(verify=edge.trust(), trust_env=False) as client:
                wait_until(lambda: client.get(f"{url}/readyz").is_success, START_TIMEOUT_SECONDS)
            yield f"{url}/"


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_a_question_is_answered_and_nothing_leaves_the_path(address: str, open_chat: OpenChat, language: str) -> None:
    chat = open_chat(address, language=language)
    chat.ask("你好")
    chat.page.get_by_role("button", name={"zh-CN": "重新生成", "en-US": "Regenerate"}[language]).wait_for()
    assert chat.answer.strip() == ANSWER
    chat.screenshot(f"front-door-{language}")
    assert [url for url in chat.requests if not url.startswith((address, "data:", "blob:"))] == []
    assert any("/public/icons/" in url for url in chat.requests)
    assert (chat.violations, chat.failures, chat.complaints) == ([], [], [])
