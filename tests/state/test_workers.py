"""Several workers behave as one gateway: one page of metrics, one set of limits, one truth of the engines."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress

from tests.conftest import free_ports
from tests.fakes.engine import DONE, EVENTS, Call, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import STREAMED, RawClient, events_in, eventually, last_error
from tests.state.server import Server
from tests.state.workers import PATIENCE_SECONDS, Workers, is_alive, workers

OK = 'gateway_requests_total{outcome="ok",route="chat_completions"}'
CONFIRMED = 'gateway_aborts_total{confirmed="yes"}'
LEFT = 'gateway_requests_total{outcome="disconnected",route="chat_completions"}'


class Held:
    """Streams that stand still after two events, until they may go on."""

    def __init__(self, engine: FakeEngine) -> None:
        self.goes_on = asyncio.Event()
        engine.script = after_events(2, self._rest)

    async def _rest(self, call: Call) -> None:
        going, left = (asyncio.create_task(event.wait()) for event in (self.goes_on, call.disconnected))
        await asyncio.wait([going, left], return_when=asyncio.FIRST_COMPLETED)
        going.cancel()
        left.cancel()
        if not call.disconnected.is_set():
            for part in [*EVENTS[2:], DONE]:
                call.chunk(part)
            call.end()


async def open_streams(gateway: Workers) -> dict[int, list[RawClient]]:
    """Open streams until each worker has some, and return them by the worker's process."""
    found: dict[int, list[RawClient]] = {}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found) < 2:
            clients = [await gateway.stream() for _ in range(6)]
            for client in clients:
                assert " 200 " in (await client.head()).partition("\r\n")[0]
            for pid, client in zip(gateway.holders(clients), clients, strict=True):
                found.setdefault(pid, []).append(client)
    return found


async def whole(client: RawClient) -> bytes:
    """Return what is left of a chunked answer, without its framing."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        received = await client.reader.read(-1)
    client.close()
    parts = b""
    while received:
        size, _, received = received.partition(b"\r\n")
        parts, received = parts + received[: int(size, 16)], received[int(size, 16) + 2 :]
    return parts


async def cut(streams: dict[int, list[RawClient]]) -> None:
    """See that these streams are over and were not completed."""
    for client in [client for clients in streams.values() for client in clients]:
        with suppress(ConnectionResetError):
            assert DONE not in await client.reader.read()
        client.close()


async def test_any_worker_counts_what_all_have_done(engine: FakeEngine, valkey: Server) -> None:
    async with workers(engine, valkey) as gateway:
        answers = await asyncio.gather(*(gateway.chat() for _ in range(40)))
        assert Counter(answer.status_code for answer in answers) == {200: 40}
        lines = await gateway.logged("request", 40, route="chat_completions")
        assert {line["worker"] for line in lines} == {1, 2}
        for _ in range(10):
            page = await gateway.metrics()
            assert page[OK] == page["gateway_request_duration_seconds_count"] == 40
            assert page['gateway_request_duration_seconds_bucket{le="+Inf"}'] == 40
            assert page['gateway_tokens_total{direction="completion"}'] == 200
            assert page["gateway_requests_in_flight"] == page["gateway_queue_depth"] == 0
            assert page["gateway_ready"] == 1
            assert sum(value for series, value in page.items() if series.startswith("gateway_engine_state")) == 1
            assert not any(series.partition("{")[0].endswith("_created") for series in page)
        before = page["process_cpu_seconds_total"]
        for pid in gateway.children():
            os.kill(pid, signal.SIGKILL)
        await gateway.logged("process_died", 3)
        assert (await gateway.chat()).status_code == 200
        page = await gateway.metrics()
        assert page[OK] == 41
        assert page["process_cpu_seconds_total"] >= before
        assert page["gateway_ready"] == 1
    # Nobody has asked the engine to prove itself again.
    states = [line["state"] for line in gateway.log if line["message"] == "engine state"]
    assert states == ["warming", "ready"]


async def test_the_limit_is_one_over_all_workers(engine: FakeEngine, valkey: Server) -> None:
    limits = {"GATEWAY_RATE_LIMIT_REQUESTS": "40/hour", "GATEWAY_MAX_STREAMS_PER_CLIENT": "off"}
    async with workers(engine, valkey, **limits) as gateway:
        answers = await asyncio.gather(*(gateway.chat() for _ in range(100)))
        assert Counter(answer.status_code for answer in answers) == {200: 40, 429: 60}
        assert len({line["worker"] for line in await gateway.logged("request", 100)}) == 2
        for pid in gateway.children()[1:]:
            os.kill(pid, signal.SIGKILL)
        await gateway.logged("process_died", 2)
        assert (await gateway.chat()).status_code == 429


async def test_a_worker_that_is_killed_takes_only_its_own_streams(engine: FakeEngine, valkey: Server) -> None:
    held = Held(engine)
    async with workers(engine, valkey) as gateway:
        streams = await open_streams(gateway)
        victim, spared = streams
        assert (await gateway.metrics())["gateway_requests_in_flight"] == sum(map(len, streams.values()))
        os.kill(victim, signal.SIGKILL)
        [line] = await gateway.logged("process_died")
        assert (line["pid"], line["exit_code"]) == (victim, -signal.SIGKILL)
        await gateway.metric_becomes("gateway_requests_in_flight", len(streams[spared]))
        report = (await gateway.call("GET", "/readyz?verbose")).json()
        assert report["engines"][0]["outstanding"] == len(streams[spared])
        held.goes_on.set()
        for client in streams[spared]:
            assert (await whole(client)).endswith(DONE)
        await cut({victim: streams[victim]})
        engine.script = answer
        answers = await asyncio.gather(*(gateway.chat() for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}
        assert victim not in gateway.children()
        assert len(gateway.children()) == 3


async def test_a_watcher_that_is_killed_is_followed_by_one_that_knows_what_it_knew(
    engine: FakeEngine, valkey: Server
) -> None:
    async with workers(engine, valkey) as gateway:
        trials = len(engine.trials)
        watcher = gateway.children()[0]
        os.kill(watcher, signal.SIGKILL)
        await gateway.logged("process_died", pid=watcher)
        assert {(await gateway.call("GET", "/readyz")).status_code for _ in range(10)} == {200}
        await engine.stop()
        await gateway.logged("engine state", state="unreachable")
        await eventually_all(gateway, "/readyz", 503)
        assert len(engine.trials) == trials
        await engine.start()
        await gateway.logged("engine state", 2, state="ready")
        await eventually_all(gateway, "/readyz", 200)


async def eventually_all(gateway: Workers, path: str, status: int) -> None:
    """Wait until eight new connections in a row get this status."""
    found = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while found < 8:
            found = found + 1 if (await gateway.call("GET", path)).status_code == status else 0


async def test_streams_finish_when_it_is_told_to_stop(engine: FakeEngine, valkey: Server) -> None:
    held = Held(engine)
    async with workers(engine, valkey) as gateway:
        streams = [client for clients in (await open_streams(gateway)).values() for client in clients]
        children = gateway.children()
        gateway.process.send_signal(signal.SIGTERM)
        await eventually_all(gateway, "/readyz", 503)
        refused = await gateway.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert (await gateway.metrics())["gateway_ready"] == 0
        held.goes_on.set()
        for client in streams:
            assert events_in(await whole(client)) == [*EVENTS, DONE]
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await gateway.process.wait() == 0
        assert not any(is_alive(pid) for pid in children)
        await gateway.reading
        assert gateway.log[-1]["message"] == "stopped"


async def test_what_outlasts_the_grace_gets_an_error(engine: FakeEngine, valkey: Server) -> None:
    Held(engine)
    async with workers(engine, valkey, GATEWAY_DRAIN_SECONDS="0.5") as gateway:
        streams = [client for clients in (await open_streams(gateway)).values() for client in clients]
        gateway.process.send_signal(signal.SIGTERM)
        for client in streams:
            assert last_error(await whole(client))["code"] == "shutting_down"
        assert await gateway.end() == 0
        assert not [line for line in gateway.log if line["message"] == "process_cut_off"]


async def test_a_second_interrupt_stops_at_once(engine: FakeEngine, valkey: Server) -> None:
    Held(engine)
    async with workers(engine, valkey, GATEWAY_DRAIN_SECONDS="600") as gateway:
        streams = await open_streams(gateway)
        children = gateway.children()
        gateway.process.send_signal(signal.SIGINT)
        await eventually_all(gateway, "/readyz", 503)
        assert await gateway.end(signal.SIGINT) == 0
        assert not any(is_alive(pid) for pid in children)
        await cut(streams)


async def test_nobody_outlives_a_supervisor_that_is_killed(engine: FakeEngine, valkey: Server) -> None:
    Held(engine)
    async with workers(engine, valkey) as gateway:
        streams = await open_streams(gateway)
        children = gateway.children()
        assert len(children) == 3
        assert await gateway.end(signal.SIGKILL) == -signal.SIGKILL
        await eventually(lambda: not any(is_alive(pid) for pid in children))
        await cut(streams)


async def test_places_and_the_queue_are_those_of_the_whole_gateway(engine: FakeEngine, valkey: Server) -> None:
    held = Held(engine)
    sizes = {"GATEWAY_MAX_IN_FLIGHT": "3", "GATEWAY_QUEUE_SIZE": "6"}
    async with workers(engine, valkey, **sizes) as gateway:
        asked = [asyncio.create_task(gateway.chat(json=STREAMED)) for _ in range(20)]
        refused = [task.result() for task in asked if task.done()]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(refused) < 11:
                await asyncio.wait([task for task in asked if not task.done()], return_when=asyncio.FIRST_COMPLETED)
                refused = [task.result() for task in asked if task.done()]
        assert {answer.json()["error"]["code"] for answer in refused} == {"overloaded"}
        await gateway.metric_becomes("gateway_queue_depth", 6)
        assert len(engine.calls) == 3
        held.goes_on.set()
        answers = await asyncio.gather(*asked)
        assert Counter(answer.status_code for answer in answers) == {200: 9, 503: 11}
        await gateway.metric_becomes("gateway_queue_depth", 0)
        assert (await gateway.call("GET", "/readyz?verbose")).json()["engines"][0]["outstanding"] == 0


async def test_a_place_that_comes_free_at_one_worker_is_had_by_the_other(engine: FakeEngine, valkey: Server) -> None:
    """All places are with one worker, and somebody waits at the other: the first that ends makes room for him."""
    gates: list[asyncio.Event] = []

    async def script(call: Call) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()
        await answer(call)

    engine.script = script
    async with workers(engine, valkey, GATEWAY_MAX_IN_FLIGHT="1") as gateway:
        asked = [asyncio.create_task(gateway.chat()) for _ in range(8)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            for number in range(8):
                await engine.next_call(number + 1, PATIENCE_SECONDS)
                assert engine.running == 1
                gates[number].set()
            answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {200}
        assert {line["worker"] for line in await gateway.logged("request", 8, outcome="ok")} == {1, 2}


async def test_the_engine_is_seen_to_stop_for_clients_that_leave(engine: FakeEngine, valkey: Server) -> None:
    engine.script = after_events(1, hold)
    engine.tokens_per_look = 1
    async with workers(engine, valkey) as gateway:
        streams = await open_streams(gateway)
        clients = [client for clients in streams.values() for client in clients]
        stays = clients.pop()
        for client in clients:
            client.close()
        await gateway.metric_becomes(LEFT, len(clients))
        await gateway.metric_becomes(CONFIRMED, len(clients))
        assert (await gateway.metrics())['gateway_aborts_total{confirmed="no"}'] == 0
        stays.close()
        await gateway.metric_becomes(CONFIRMED, len(clients) + 1)


async def test_nginx_is_asked_once(engine: FakeEngine, valkey: Server) -> None:
    """Here the gateway is its own edge, which believes whatever is claimed: a finding, by whomever it is answered."""
    port = free_ports(["gateway"])["gateway"]
    async with workers(engine, valkey, port, GATEWAY_EDGE_URL=f"http://127.0.0.1:{port}") as gateway:
        [line] = await gateway.logged("edge_disagrees")
        assert line["counted_as"] == "192.0.2.1"
        for _ in range(8):
            assert (await gateway.metrics())["gateway_edge_disagreement"] == 1
