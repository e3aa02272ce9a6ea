"""What somebody sends who means harm: no inner path is reached, and nobody else is touched."""

import contextlib
import posixpath
import random
from urllib.parse import unquote

import httpx
import pytest
from aiohttp import web

from tests.edge.backend import Backend, serve
from tests.edge.server import WORKERS, Edge, StartEdge
from tests.edge.wire import raw_exchange
from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import running_gateway

pytestmark = pytest.mark.edge

INNER = {
    *("livez", "readyz", "healthz", "metrics", "status", "health", "docs", "redoc", "openapi.json", "errors"),
    *("tokenize", "detokenize", "invocations", "inference", "version", "sleep", "server_info", "reset_prefix_cache"),
}
PIECES = [
    *(
        "metrics",
        "readyz",
        "livez",
        "status/targets",
        "tokenize",
        "v1",
        "v1/models",
        "assets",
        "public",
        "ws/socket.io",
    ),
    *("..", ".", "", "%2e%2e", "%2E.", "..;", ";", "%2f", "%2F..", "%5c..", "\\", "x", "%252e%252e", "%23", "%3f"),
    *("metrics.", "metrics;x", "%6Detrics", "readyz%3fverbose", "metrics%20", "metrics%0a", "METRICS", "%c0%ae%c0%ae"),
]
PATHS = 400
SMUGGLED = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"0\r\n\r\n" + SMUGGLED


def reached(raw: str) -> str:
    """Return what a service could take a path for that decodes it and resolves its dots."""
    path = unquote(raw.partition("?")[0])
    return posixpath.normpath("/" + path.lstrip("/"))


async def test_no_way_of_writing_a_path_reaches_an_inner_one(edge: Edge, gateway: Backend, chat_ui: Backend) -> None:
    chosen = random.Random(7)  # noqa: S311 - the same paths each time
    for _ in range(PATHS):
        path = "/" + "/".join(chosen.choices(PIECES, k=chosen.randint(1, 5)))
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert (await raw_exchange(edge, request.encode())).startswith(b"HTTP/1.1 ")
    for raw in gateway.paths:
        assert raw == "/readyz" or f"{reached(raw)}/".startswith("/v1/"), raw
    for raw in chat_ui.paths:
        first, _, rest = reached(raw).lstrip("/").partition("/")
        # Where a name only begins like an inner one, the page answers as to any other address.
        assert first not in INNER, raw
        assert (first, rest) != ("v1", ""), raw
    assert gateway.paths
    assert chat_ui.paths


@pytest.mark.parametrize(
    "raw", ["//assets/a.js", "/x/../assets/a.js", "/assets/./a.js", "/%61ssets/a.js", "/assets//a.js"]
)
async def test_nobody_puts_another_answer_in_an_assets_place(start_edge: StartEdge, raw: str) -> None:
    """The page's server answers an address that it does not know with the page, and 200."""

    async def answer(request: web.Request) -> web.Response:
        is_asset = request.raw_path == "/assets/a.js"
        return web.Response(text="the asset" if is_asset else "<html>")

    edge = start_edge()
    async with serve(Backend("chat-ui"), edge.chat_port) as chat_ui:
        chat_ui.handler = answer
        await raw_exchange(edge, f"GET {raw} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        async with httpx.AsyncClient(base_url=edge.url, trust_env=False) as client:
            assert (await client.get("/assets/a.js")).text == "the asset"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Range": "bytes=999999-"}, 416, "range_not_satisfiable"),
        ({"If-Match": '"another"'}, 412, "precondition_failed"),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 412, "precondition_failed"),
    ],
)
async def test_a_condition_that_does_not_hold_is_told_in_json(
    client: httpx.AsyncClient, chat_ui: Backend, headers: dict[str, str], status: int, code: str
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="0123456789", headers={"ETag": '"one"', "Accept-Ranges": "bytes"})

    chat_ui.handler = answer
    path = f"/assets/{code}-{len(headers)}-{next(iter(headers))}.js"
    assert (await client.get(path)).text == "0123456789"
    answered = await client.get(path, headers=headers)
    assert answered.status_code == status
    assert answered.headers["cache-control"].endswith("no-store")
    assert answered.json()["error"]["code"] == code


async def test_parts_and_conditions_of_assets_are_answered_from_the_copy(
    client: httpx.AsyncClient, chat_ui: Backend
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="0123456789", headers={"ETag": '"one"', "Accept-Ranges": "bytes"})

    chat_ui.handler = answer
    plain = {"Accept-Encoding": "identity"}
    await client.get("/assets/parts.js", headers=plain)
    part = await client.get("/assets/parts.js", headers=plain | {"Range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")
    same = await client.get("/assets/parts.js", headers=plain | {"If-None-Match": '"one"'})
    assert (same.status_code, same.content) == (304, b"")
    # A thousand overlapping parts are not a thousand copies.
    many = await client.get("/assets/parts.js", headers=plain | {"Range": "bytes=" + ",".join(["0-9"] * 1000)})
    assert len(many.content) < 1000
    assert len(chat_ui.seen) == 1


SMUGGLING = {
    "both lengths": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(CHUNKED) + CHUNKED,
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "one length twice": b"Content-Length: 0, %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "a signed length": b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "a space before the colon": b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKED,
    "a folded header": b"X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
    "another encoding first": b"Transfer-Encoding: identity, chunked\r\n\r\n" + CHUNKED,
    "a misspelt encoding": b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED,
    "two encodings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n" + CHUNKED,
    "a tab before the encoding": b"Transfer-Encoding:\tchunked, chunked\r\n\r\n" + CHUNKED,
    "a size that is none": b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a size beyond all numbers": b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nx\r\n0\r\n\r\n" + SMUGGLED,
    "a bare carriage return": b"X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
    "a zero byte": b"X-A: b\x00\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
}


@pytest.mark.parametrize("rest", SMUGGLING.values(), ids=SMUGGLING)
async def test_no_request_is_hidden_in_another(edge: Edge, gateway: Backend, chat_ui: Backend, rest: bytes) -> None:
    """Whatever nginx makes of it, the gateway sees one request or none, on a connection that stays in step."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    with contextlib.suppress(ConnectionResetError):
        await raw_exchange(edge, head + rest)
    for _ in range(WORKERS):
        await raw_exchange(edge, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert [path for path in gateway.paths if path != "/v1/models"] in ([], ["/v1/chat/completions"])
    assert gateway.paths.count("/v1/models") == WORKERS
    assert chat_ui.paths == []


async def test_a_refused_upgrade_opens_no_way_past_nginx(edge: Edge, chat_ui: Backend) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=426, text="no")

    chat_ui.handler = refuse
    handshake = (
        b"GET /ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 777\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    )
    answers = await raw_exchange(edge, handshake + SMUGGLED)
    assert answers.count(b"HTTP/1.1 426 ") == 1
    assert answers.count(b"HTTP/1.1 404 ") == 1
    assert chat_ui.paths == ["/ws/socket.io/?EIO=4&transport=websocket"]


@pytest.mark.parametrize(
    "request_line", ["GET http://chat.example.org/ HTTP/1.1", "GET http://CHAT.example.org:80/ HTTP/1.1"]
)
async def test_a_host_that_is_not_served_is_told_to_no_service(start_edge: StartEdge, request_line: str) -> None:
    """The address in the request's first line chooses the server; the header must not say something else behind it."""
    edge = start_edge(NGINX_SERVER_NAMES="chat.example.org")
    async with serve(Backend("chat-ui"), edge.chat_port) as chat_ui:
        await raw_exchange(edge, f"{request_line}\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode())
    assert [request.headers["Host"] for request in chat_ui.seen] in ([], ["chat.example.org"])


@pytest.mark.parametrize(
    "head",
    [
        b"Host: x\r\nHost: evil.example",
        b"Host: x y",
        b"Host: x/../y",
        b"Host: x@evil.example",
        b"Host: x\\evil.example",
        b"Host: \xe4\xbd\xa0",
        b"Host: ..",
        b"Host:",
    ],
)
async def test_a_host_that_is_none_is_refused_or_left_out(edge: Edge, chat_ui: Backend, head: bytes) -> None:
    answer = await raw_exchange(edge, b"GET / HTTP/1.1\r\n" + head + b"\r\nConnection: close\r\n\r\n")
    told = [request.headers["Host"] for request in chat_ui.seen]
    assert answer.startswith(b"HTTP/1.1 400 ") or told == ["_"], (answer[:20], told)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models HTTP/2.0\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /v1/models\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
    ],
    ids=["CONNECT", "asterisk", "no slash", "a wrong version", "HTTP/2 at once", "TLS", "a zero byte", "zeros"],
)
async def test_what_is_meant_for_another_server_is_refused(
    edge: Edge, gateway: Backend, chat_ui: Backend, request_bytes: bytes
) -> None:
    answer = await raw_exchange(edge, request_bytes)
    assert answer.partition(b"\r\n")[0].split(b" ")[1][:1] in {b"4", b"5"}, answer[:50]
    assert gateway.paths + chat_ui.paths == []


@pytest.mark.parametrize("size", [15_000, 30_000, 45_000, 60_000, 64_500, 70_000])
async def test_heads_of_any_size_are_taken_or_refused_as_too_large(edge: Edge, size: int) -> None:
    """What nginx takes, the gateway takes or refuses in the same words: no size of cookies is a fault of a service."""
    cookie = b"Cookie: " + b"c" * 7_000 + b"\r\n"
    cookies = cookie * (size // len(cookie))
    async with FakeEngine() as engine, running_gateway(engine, port=edge.gateway_port):
        answer = await raw_exchange(
            edge, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + cookies + b"\r\n"
        )
    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 431 "))
    assert (b" 200 " in answer[:20]) or b"headers_too_large" in answer
