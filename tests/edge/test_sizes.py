"""One limit of size along the whole way: what nginx lets through the gateway takes, and both refuse alike."""

import json

import httpx
import pytest
from chat_ui.settings import Settings as ChatUiSettings
from gateway.settings import Settings as GatewaySettings

from ops.edge import DEFAULTS
from tests.edge.server import MAX_BODY_BYTES, Edge
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import CHAT, running_gateway

pytestmark = pytest.mark.edge

UTF8_BYTES = 4
TOKEN_BYTES = 12


def body_of(size: int) -> bytes:
    """Return a proper question of exactly so many bytes."""
    plain = json.dumps(CHAT).encode()
    return plain[:-1] + b" " * (size - len(plain)) + plain[-1:]


async def test_the_largest_body_is_answered_and_one_byte_more_is_refused_alike_by_both(edge: Edge) -> None:
    async with (
        FakeEngine() as engine,
        running_gateway(engine, port=edge.gateway_port, GATEWAY_MAX_BODY_BYTES=str(MAX_BODY_BYTES)) as gateway,
        httpx.AsyncClient(trust_env=False, timeout=20) as client,
    ):
        headers = {"Content-Type": "application/json"}
        ways = [f"{url}/v1/chat/completions" for url in (edge.url, f"http://127.0.0.1:{gateway.port}")]
        for way in ways:
            answer = await client.post(way, content=body_of(MAX_BODY_BYTES), headers=headers)
            assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
        refusals = [await client.post(way, content=body_of(MAX_BODY_BYTES + 1), headers=headers) for way in ways]
        assert [answer.status_code for answer in refusals] == [413, 413]
        told = [{k: v for k, v in answer.json()["error"].items() if k != "message"} for answer in refusals]
        assert told[0] == told[1]
        assert len(engine.calls) == 2


def test_the_defaults_are_one_number() -> None:
    assert int(DEFAULTS["NGINX_MAX_BODY_BYTES"]) == GatewaySettings().max_body_bytes


def test_the_longest_conversation_of_the_page_fits() -> None:
    page = ChatUiSettings()
    question = page.max_message_characters * UTF8_BYTES
    conversation = question + page.max_history_turns * (question + page.max_tokens * TOKEN_BYTES)
    assert conversation < GatewaySettings().max_body_bytes
