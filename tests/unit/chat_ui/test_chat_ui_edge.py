"""Whose pages may call, and what a page may load."""

import httpx
import pytest
from chat_ui.edge import Edge, content_security_policy
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

POLICY = content_security_policy(["'sha256-x'"])


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    kind = HTMLResponse if scope["path"] == "/" else PlainTextResponse
    await kind("inside")(scope, receive, send)


EDGE = Edge(application, allowed_origins=("https://chat.example",), policy=POLICY)


async def get(path: str = "/", host: str = "page.example:8080", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(EDGE), base_url=f"http://{host}") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://page.example:8080", "page.example:8080"),
        ("http://page.example", "page.example"),
        ("https://page.example", "page.example"),
        ("https://page.example", "page.example:443"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("https://chat.example", "page.example:8080"),
    ],
)
async def test_own_and_allowed_pages_may_call(origin: str, host: str) -> None:
    assert (await get(host=host, origin=origin)).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://page.example.evil.example:8080",
        "http://page.example",
        "http://page.example:3000",
        "null",
        "http://[",
        "http://page.example:x",
        "http://chat.example",
    ],
)
async def test_pages_of_other_sites_are_refused(origin: str) -> None:
    response = await get(origin=origin)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "foreign_origin"


async def test_websocket_of_another_site_is_closed_before_it_opens() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/ws", "headers": [(b"host", b"a"), (b"origin", b"http://b")]}
    await EDGE(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_page_may_load_from_its_own_site_only() -> None:
    policy = (await get()).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "//" not in policy


@pytest.mark.parametrize(
    ("path", "policy"), [("/assets/index-B2.js", "immutable"), ("/public/page.css", "max-age=3600"), ("/", "no-cache")]
)
async def test_files_are_cached_as_long_as_their_names_allow(path: str, policy: str) -> None:
    assert policy in (await get(path)).headers["cache-control"]


async def test_a_file_is_refused_unread_with_a_sentence_for_the_page() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(EDGE), base_url="http://page.example") as client:
        response = await client.post("/project/file", params={"session_id": "s"}, files={"file": ("a.txt", "text")})
    assert response.status_code == 403
    assert "text only" in response.json()["detail"]
