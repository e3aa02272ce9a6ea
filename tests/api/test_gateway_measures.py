"""The figures are of what happened: whole streams measured once each, and a number of series that nobody can raise."""

import asyncio
import json
import random
import string

from gateway.app import create_app
from gateway.settings import Settings

from tests.fakes.engine import DONE, Call, FakeEngine, after_events
from tests.fakes.gateway import CHAT, STREAMED, RunningGateway, eventually

ROUTES = {
    "/v1/chat/completions": "chat_completions",
    "/v1/completions": "completions",
    "/tokenize": "tokenize",
    "/v1/models": "models",
    "/livez": "livez",
    "/readyz": "readyz",
    "/metrics": "metrics",
    "/status": "status",
    "/status/page.css": "status",
    "/status/page.js": "status",
    "/status/figures": "status",
    "/status/targets": "status",
}


async def test_streams_count_once_and_whole_however_they_end(engine: FakeEngine, gateway: RunningGateway) -> None:
    goes_on = asyncio.Event()

    async def done(call: Call) -> None:
        await goes_on.wait()
        call.chunk(DONE)
        call.end()

    async def fail(call: Call) -> None:
        await goes_on.wait()
        call.fin()

    async def left(call: Call) -> None:
        await call.disconnected.wait()

    endings = {"ok": done, "truncated": fail, "disconnected": left}
    engine.script = lambda call: after_events(1, endings[call.json["user"]])(call)
    clients = {ending: await gateway.raw({**STREAMED, "user": ending}) for ending in endings}
    for client in clients.values():
        await client.head()
    await asyncio.sleep(0.2)
    assert await gateway.metric("gateway_requests_in_flight") == 3
    goes_on.set()
    clients["disconnected"].close()
    await eventually(lambda: not len(gateway.parts.in_flight))
    assert await gateway.metric("gateway_requests_in_flight") == 0
    assert await gateway.metric("gateway_request_duration_seconds_count") == 3
    assert await gateway.metric("gateway_request_duration_seconds_sum") >= 3 * 0.2
    for ending in endings:
        assert await gateway.metric("gateway_requests_total", route="chat_completions", outcome=ending) == 1
        clients[ending].close()


async def test_each_route_has_its_label(engine: FakeEngine, gateway: RunningGateway) -> None:
    served = {route.path for route in create_app(Settings()).control.routes}  # type: ignore[attr-defined]
    assert served == ROUTES.keys()
    bodies = {
        "/v1/chat/completions": CHAT,
        "/v1/completions": {"prompt": "你好"},
        "/tokenize": {"messages": CHAT["messages"]},
    }
    for path, label in ROUTES.items():
        body = bodies.get(path)
        assert (await gateway.client.request("POST" if body else "GET", path, json=body)).status_code == 200
        # The page of metrics does not hold the request for itself.
        counted = await gateway.metric("gateway_requests_total", route=label, outcome="ok")
        expected = sum(1 for earlier in list(ROUTES)[: list(ROUTES).index(path) + 1] if ROUTES[earlier] == label)
        assert counted == expected or (label == "metrics" and counted > 1), label


async def test_5000_names_make_no_series(engine: FakeEngine, gateway: RunningGateway) -> None:
    chance = random.Random(11)  # noqa: S311  (names, not secrets)

    def name() -> str:
        return "".join(chance.choices(string.ascii_letters + string.digits + "-._~%", k=chance.randint(1, 30)))

    async def series() -> set[str]:
        page = (await gateway.client.get("/metrics")).text
        return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}

    async def send(requests: list[bytes]) -> None:
        """Send many requests on one connection without waiting for the answers, the last one closing it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"".join(requests) + b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answers = await reader.read()
        assert answers.count(b"HTTP/1.1 ") == len(requests) + 1
        writer.close()

    def scan(_: int) -> bytes:
        method = chance.choice(["GET", "PUT", "PROPFIND", "DELETE", "OPTIONS", "TRACE", "SEARCH"])
        return f"{method} /{name()}/{name()} HTTP/1.1\r\nhost: x\r\nx-request-id: {name()}\r\n\r\n".encode()

    def ask(number: int) -> bytes:
        # Every other one is refused, so that it does not need the engine.
        body = json.dumps({**CHAT, "model": name(), "user": name()} | ({name(): 1} if number % 2 else {})).encode()
        return b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    before = await series()
    await asyncio.gather(*(send([scan(number) for number in range(400)]) for _ in range(10)))
    await asyncio.gather(*(send([ask(number) for number in range(100)]) for _ in range(10)))
    assert len(engine.calls) == 500
    assert await series() == before


async def test_every_scrape_counts_all_requests(gateway: RunningGateway) -> None:
    seen = []
    for _ in range(20):
        await asyncio.gather(*(gateway.chat() for _ in range(3)))
        seen.append(await gateway.metric("gateway_requests_total", route="chat_completions", outcome="ok"))
    assert seen == [3 * number for number in range(1, 21)]
