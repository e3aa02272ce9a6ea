"""nginx, the chat page and the gateway together: who is told apart from whom, and that no header changes it."""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import clean_environment
from tests.edge.person import Person
from tests.edge.server import Edge
from tests.fakes.engine import FakeEngine, after_events, hold
from tests.fakes.gateway import CHAT, RunningGateway, check_retry_after, error_of, eventually, running_gateway

pytestmark = pytest.mark.edge

LIMIT = 3
ANSWER = "你好, world 🔥"
TOO_FAST = "You are asking too fast."
ENGLISH = {"Accept-Language": "en-US"}
ONE, OTHER = "127.0.0.1", "127.0.0.2"
START_TIMEOUT_SECONDS = 30.0
FORGERIES = [
    {"X-Forwarded-For": "203.0.113.{n}"},
    {"X-Forwarded-For": "198.51.100.1, 203.0.113.{n}, 10.0.0.{n}"},
    {"X-Forwarded-For": "23189987{n}"},
    {"X-Forwarded-For": "2001:db8:{n}::1"},
    {"X-Forwarded-For": "x" * 10_000 + "{n}"},
    {"X-Real-IP": "203.0.113.{n}"},
    {"Forwarded": 'for="203.0.113.{n}"'},
    {"X-End-User-Address": "203.0.113.{n}"},
    {"X-End-User-Address": "203.0.113.{n}", "Authorization": "Bearer {n}"},
    {"X-Forwarded-For": "203.0.113.{n}", "X-Real-IP": "203.0.113.{n}", "Forwarded": "for=203.0.113.{n}"},
]


def forged(headers: dict[str, str], number: int) -> dict[str, str]:
    return {name: value.replace("{n}", str(number)) for name, value in headers.items()}


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as fake:
        yield fake


@pytest.fixture
async def gateway(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    key_file = str(tmp_path / "chat-ui-key")
    limit = f"{LIMIT}/minute"
    async with running_gateway(engine, GATEWAY_RATE_LIMIT_REQUESTS=limit, GATEWAY_CHAT_UI_KEY_FILE=key_file) as running:
        yield running


@pytest.fixture
async def nginx(gateway: RunningGateway, tmp_path: Path) -> AsyncIterator[Edge]:
    edge = Edge(tmp_path / "nginx", gateway.port)
    edge.start()
    yield edge
    assert edge.stop() == 0


@contextlib.asynccontextmanager
async def chat_page(edge: Edge, folder: Path, key_file: Path) -> AsyncIterator[Path]:
    """Serve the real chat page behind this nginx; gives its log."""
    log = folder / "chat-ui.log"
    environment = clean_environment(
        CHAT_UI_PORT=str(edge.chat_port),
        CHAT_UI_GATEWAY_URL=f"http://127.0.0.1:{edge.gateway_port}",
        CHAT_UI_GATEWAY_KEY_FILE=str(key_file),
        TMPDIR=str(folder),
    )
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "chat_ui", env=environment, cwd="/", stdout=output, stderr=output
        )
        try:
            await eventually(lambda: "chat page on" in log.read_text(), START_TIMEOUT_SECONDS)
            yield log
        finally:
            process.terminate()
            await process.wait()
    assert "Traceback" not in log.read_text()


def api_from(edge: Edge, address: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    return httpx.AsyncClient(base_url=edge.url, transport=transport, trust_env=False)


async def ask(api: httpx.AsyncClient, **headers: str) -> httpx.Response:
    return await api.post("/v1/chat/completions", json=CHAT, headers=headers)


async def flood(api: httpx.AsyncClient, number: int) -> Counter[int]:
    return Counter(answer.status_code for answer in await asyncio.gather(*(ask(api) for _ in range(number))))


async def test_two_addresses_behind_nginx_are_two_clients(nginx: Edge) -> None:
    async with api_from(nginx, ONE) as one, api_from(nginx, OTHER) as other:
        assert await flood(one, 20) == {200: LIMIT, 429: 20 - LIMIT}
        refused = await ask(one)
        assert error_of(refused)["code"] == "rate_limit_exceeded"
        check_retry_after(refused)
        assert await flood(other, LIMIT + 1) == {200: LIMIT, 429: 1}


async def test_no_header_makes_another_client(nginx: Edge, gateway: RunningGateway) -> None:
    async with api_from(nginx, ONE) as api:
        assert await flood(api, LIMIT) == {200: LIMIT}
        for headers in FORGERIES:
            answers = [await ask(api, **forged(headers, number)) for number in range(5)]
            assert [answer.status_code for answer in answers] == [429] * 5, headers
    # Nor does one spend another's share.
    for number in range(5):
        address = {"x-forwarded-for": f"203.0.113.{number}"}
        assert (await gateway.chat(headers=address)).status_code == 200


async def test_two_people_at_the_page_are_two_clients_and_one_who_floods_blocks_nobody(
    nginx: Edge, tmp_path: Path, engine: FakeEngine
) -> None:
    async with (
        chat_page(nginx, tmp_path, tmp_path / "chat-ui-key") as log,
        Person(nginx.url, ONE, ENGLISH) as one,
        Person(nginx.url, OTHER, ENGLISH) as other,
    ):
        assert [await one.ask("你好") for _ in range(LIMIT)] == [ANSWER] * LIMIT
        refused = await one.ask("你好")
        assert TOO_FAST in refused
        assert " Try again in " in refused
        # What is asked while the refusal counts down is kept on the page, and sent when its time has come.
        held = asyncio.create_task(one.ask("你好"))
        assert await other.ask("你好") == ANSWER
        assert len(engine.calls) == LIMIT + 1
        assert not held.done()
        held.cancel()
        async with api_from(nginx, ONE) as script, api_from(nginx, OTHER) as another:
            # A person's script has no further share of its own.
            assert (await ask(script)).status_code == 429
            assert (await ask(another)).status_code == 200
        assert "GATEWAY_KEY" not in log.read_text()


async def test_one_who_is_answered_at_length_holds_up_nobody(nginx: Edge, tmp_path: Path, engine: FakeEngine) -> None:
    async with (
        chat_page(nginx, tmp_path, tmp_path / "chat-ui-key"),
        Person(nginx.url, ONE, ENGLISH) as one,
        Person(nginx.url, OTHER, ENGLISH) as other,
    ):
        normal, engine.script = engine.script, after_events(2, hold)
        long_answer = asyncio.create_task(one.ask("你好"))
        await engine.next_call()
        engine.script = normal
        assert await other.ask("你好") == ANSWER
        assert not long_answer.done()
        long_answer.cancel()


async def test_no_header_makes_another_person(nginx: Edge, tmp_path: Path) -> None:
    async with chat_page(nginx, tmp_path, tmp_path / "chat-ui-key"):
        async with Person(nginx.url, ONE, ENGLISH) as person:
            assert [await person.ask("你好") for _ in range(LIMIT)] == [ANSWER] * LIMIT
        for number, headers in enumerate(FORGERIES):
            async with Person(nginx.url, ONE, ENGLISH | forged(headers, number)) as person:
                assert TOO_FAST in await person.ask("你好"), headers


async def test_without_its_key_the_page_is_one_client_and_says_so(nginx: Edge, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    async with chat_page(nginx, tmp_path, missing) as log:
        async with Person(nginx.url, ONE, ENGLISH) as one, Person(nginx.url, OTHER, ENGLISH) as other:
            assert log.read_text().count("CHAT_UI_GATEWAY_KEY_FILE") == 1
            assert [await one.ask("你好") for _ in range(LIMIT)] == [ANSWER] * LIMIT
            assert TOO_FAST in await other.ask("你好")
        # The key comes: from now on they are told apart, without a restart.
        missing.write_bytes((tmp_path / "chat-ui-key").read_bytes())
        async with Person(nginx.url, OTHER, ENGLISH) as other:
            assert await other.ask("你好") == ANSWER
