"""The chat page's socket: long polling and websocket through one location, and nowhere else."""

import aiohttp
import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend
from tests.edge.server import Edge

pytestmark = pytest.mark.edge

SOCKET = "/ws/socket.io/?EIO=4&transport="
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Send each message back."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data)
    return socket


async def test_polling_carries_no_upgrade(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    assert (await client.get(SOCKET + "polling")).status_code == 200
    assert (await client.post(SOCKET + "polling", content="40")).status_code == 200
    assert chat_ui.paths == [SOCKET + "polling"] * 2
    for request in chat_ui.seen:
        assert "Upgrade" not in request.headers
        assert request.headers.get("Connection", "").lower() != "upgrade"


async def test_a_websocket_passes_both_ways(edge: Edge, chat_ui: Backend) -> None:
    chat_ui.handler = echo
    async with aiohttp.ClientSession() as session, session.ws_connect(edge.url + SOCKET + "websocket") as socket:
        for text in ("你好", "🔥" * 10_000):
            await socket.send_str(text)
            assert await socket.receive_str(timeout=2) == text
    assert chat_ui.paths == [SOCKET + "websocket"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/"])
async def test_other_locations_pass_no_upgrade(
    client: httpx.AsyncClient, gateway: Backend, chat_ui: Backend, path: str
) -> None:
    assert (await client.get(path, headers=HANDSHAKE)).status_code == 200
    (request,) = gateway.seen + chat_ui.seen
    assert "Upgrade" not in request.headers


async def test_no_other_protocol_passes(client: httpx.AsyncClient, chat_ui: Backend) -> None:
    await client.get(SOCKET + "polling", headers={"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"})
    assert "Upgrade" not in chat_ui.seen[0].headers
