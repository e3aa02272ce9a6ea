"""Engines that a launcher names: they come, go and tell how far they are, each watched and used as any other."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from gateway.history import Totals

from tests.fakes.engine import EVENTS, FakeEngine, after_events, answer, hold
from tests.fakes.gateway import (
    COMPLETIONS,
    PROMPT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    error_of,
    events_in,
    eventually,
    running_gateway,
)
from tests.fakes.launcher import FakeLauncher, engine_status

ROOM = {"GATEWAY_QUEUE_SIZE": "9", "GATEWAY_QUEUE_TIMEOUT_SECONDS": "20"}


@pytest.fixture
async def launcher() -> AsyncIterator[FakeLauncher]:
    async with FakeLauncher() as fake:
        yield fake


@asynccontextmanager
async def before(launcher: FakeLauncher, **settings: str) -> AsyncIterator[RunningGateway]:
    """Serve a gateway before a launcher, whatever that says."""
    async with running_gateway(GATEWAY_UPSTREAMS=launcher.upstream, wait=False, **settings) as gateway:
        yield gateway


def ready(gateway: RunningGateway) -> int:
    return sum(engine.takes_requests for engine in gateway.parts.upstreams.engines)


def labels(gateway: RunningGateway) -> dict[str, str]:
    return {engine.label: engine.base_url for engine in gateway.parts.upstreams.engines}


async def names_give(gateway: RunningGateway, *addresses: str) -> None:
    """Let every name have these addresses, and look them up."""
    loop = asyncio.get_running_loop()
    real = type(loop).getaddrinfo

    async def getaddrinfo(host: str, port: int, **how: Any) -> list[Any]:
        if not host.startswith("vllm"):
            return await real(loop, host, port, **how)
        if not addresses:
            raise socket.gaierror
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, port)) for one in addresses]

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]
    await gateway.parts.readiness.look_up()


async def test_each_of_several_engines_gets_its_share(launcher: FakeLauncher) -> None:
    async with FakeEngine() as first, FakeEngine() as second, FakeEngine() as third:
        engines = (first, second, third)
        launcher.runs(*(engine.port for engine in engines))
        async with before(launcher) as gateway:
            await eventually(lambda: ready(gateway) == 3)
            name = f"127.0.0.1:{launcher.port}"
            expected = {f"{name}/1/{number}": engine.url for number, engine in enumerate(engines, 1)}
            assert labels(gateway) == expected
            assert {engine.family for engine in gateway.parts.upstreams.engines} == {name}
            for engine in engines:
                engine.script = hold
            # The least busy one takes each: two of every engine's, however fast the turns come.
            clients = [await gateway.raw(PROMPT, COMPLETIONS) for _ in range(6)]
            await eventually(lambda: [len(engine.calls) for engine in engines] == [2, 2, 2])
            for client in clients:
                client.close()
            assert await gateway.metric("gateway_engine_state", engine=f"{name}/1/2", state="ready") == 1
            await assert_quiescent(gateway, *engines)


async def test_engine_that_is_listed_later_joins_and_one_that_is_not_any_more_leaves(launcher: FakeLauncher) -> None:
    async with FakeEngine() as first, FakeEngine() as second:
        launcher.runs(first.port)
        async with before(launcher) as gateway:
            await eventually(lambda: ready(gateway) == 1)
            launcher.runs(first.port, second.port)
            await eventually(lambda: ready(gateway) == 2)
            goes_on = asyncio.Event()

            async def rest(call: Any) -> None:
                await goes_on.wait()
                for part in (*EVENTS[1:], b"data: [DONE]\n\n"):
                    call.chunk(part)
                call.end()

            first.script = second.script = after_events(1, rest)
            streams = [asyncio.create_task(gateway.client.post(COMPLETIONS, json=PROMPT)) for _ in range(2)]
            await asyncio.gather(first.next_call(), second.next_call())
            launcher.runs(second.port)
            await eventually(lambda: ready(gateway) == 1)
            leaving = gateway.parts.upstreams.engines[-1]
            assert (leaving.base_url, leaving.state) == (first.url, "draining")
            goes_on.set()
            for answered in await asyncio.gather(*streams):
                assert events_in(answered.content)[:-1] == EVENTS
            await gateway.parts.readiness.look_up()
            assert list(labels(gateway).values()) == [second.url]
            assert leaving.label not in (await gateway.client.get("/metrics")).text
            # Its number is free again.
            launcher.runs(first.port, second.port)
            await eventually(lambda: ready(gateway) == 2)
            assert labels(gateway)[leaving.label] == first.url
            await assert_quiescent(gateway, first, second)


async def test_stopping_engine_gets_nothing_new_while_its_stream_finishes(launcher: FakeLauncher) -> None:
    goes_on = asyncio.Event()

    async def rest(call: Any) -> None:
        await goes_on.wait()
        for part in (*EVENTS[1:], b"data: [DONE]\n\n"):
            call.chunk(part)
        call.end()

    async with FakeEngine() as engine:
        launcher.runs(engine.port)
        engine.script = after_events(1, rest)
        async with before(launcher, **ROOM) as gateway:
            await eventually(lambda: ready(gateway) == 1)
            opened = asyncio.create_task(gateway.chat(STREAMED))
            await engine.next_call()
            # Its health is as good as ever: only the launcher knows.
            launcher.runs(engine.port, stage="stopping")
            await gateway.becomes("draining")
            report = (await gateway.report())["engines"][0]
            assert report["stage"]["name"] == "stopping"
            assert "being stopped" in report["waits_for"]
            late = asyncio.create_task(gateway.chat())
            await eventually(lambda: len(gateway.parts.admission) == 1)
            goes_on.set()
            assert events_in((await opened).content)[:-1] == EVENTS
            assert len(engine.calls) == 1
            engine.script = answer
            launcher.runs(engine.port)
            assert (await late).status_code == 200
            assert len(engine.calls) == 2
            await assert_quiescent(gateway, engine)


async def test_restart_is_noticed_and_timed_by_the_launchers_word(launcher: FakeLauncher) -> None:
    async with FakeEngine() as engine:
        engine.started_at = 0.0  # as a server of several processes: none of its own
        began_at = time.time() - 3600
        launcher.runs(engine.port, started_at=began_at)
        async with before(launcher) as gateway:
            await eventually(lambda: ready(gateway) == 1)
            trials = len(engine.trials)
            await eventually(lambda: launcher.asked > 5)
            assert len(engine.trials) == trials
            launcher.runs(engine.port, started_at=time.time())
            await eventually(lambda: len(engine.trials) > trials and ready(gateway) == 1)
            # Away, and back by a new process: that is a start, and it is remembered.
            await engine.stop()
            await gateway.becomes("unreachable")
            launcher.runs(engine.port, stage="loading", started_at=time.time())
            await eventually(lambda: gateway.parts.upstreams.engines[0].start is not None)
            await engine.start()
            await gateway.becomes("ready")
            await engine.stop()
            await gateway.becomes("unreachable")
            start = (await gateway.report())["engines"][0]["start"]
            assert 0 < start["usual_seconds"] < 10


async def test_engines_own_word_of_its_start_counts_first(launcher: FakeLauncher) -> None:
    async with FakeEngine() as engine:
        launcher.runs(engine.port, started_at=time.time() - 100)
        async with before(launcher) as gateway:
            await eventually(lambda: ready(gateway) == 1)
            trials = len(engine.trials)
            launcher.runs(engine.port, started_at=time.time())
            asked = launcher.asked
            await eventually(lambda: launcher.asked > asked + 5)
            assert len(engine.trials) == trials


async def test_progress_is_shown_before_any_engine_exists(launcher: FakeLauncher) -> None:
    launcher.stage, launcher.progress, launcher.detail = "downloading", 0.43, "310 of 721 MB, 34 s left"
    async with FakeEngine() as engine, before(launcher, **ROOM) as gateway:
        await eventually(lambda: "43 %" in gateway.parts.upstreams.waits_for())
        report = await gateway.report()
        [shown] = report["engines"]
        assert shown["engine"] == f"127.0.0.1:{launcher.port}/1"
        assert shown["state"] == "loading"
        assert shown["waits_for"] == "downloading, 43 % (310 of 721 MB, 34 s left)"
        assert (shown["stage"]["name"], shown["stage"]["progress"]) == ("downloading", 0.43)
        assert shown["stage"]["seconds"] >= 1
        refused = await gateway.client.get("/readyz")
        assert refused.status_code == 503
        assert "downloading, 43 %" in error_of(refused)["message"]
        asked = asyncio.create_task(gateway.chat())
        await eventually(lambda: len(gateway.parts.admission) == 1)
        # The first engine loads, the second waits for it; the first is the one that people wait for.
        await engine.stop()
        launcher.engines = [
            engine_status(engine.port, "compiling", progress=0.5),
            engine_status(1, "waiting"),
        ]
        await eventually(lambda: "compiling, 50 %" in gateway.parts.upstreams.waits_for())
        first, second = (await gateway.report())["engines"]
        assert first["waits_for"] == "compiling, 50 %"
        assert (second["waits_for"], second["stage"]["progress"]) == ("waiting", None)
        await engine.start()
        launcher.runs(engine.port)
        assert (await asked).status_code == 200
        assert (await gateway.report())["engines"][0]["stage"]["name"] == "serving"
        await assert_quiescent(gateway, engine)


async def test_name_without_an_address_is_shown() -> None:
    async with running_gateway(GATEWAY_UPSTREAMS="launcher://vllm.invalid:8090", wait=False) as gateway:
        await names_give(gateway)
        [shown] = (await gateway.report())["engines"]
        assert (shown["engine"], shown["state"]) == ("vllm.invalid:8090", "unreachable")
        assert "name has no address" in error_of(await gateway.client.get("/readyz"))["message"]


async def test_two_addresses_of_one_name_are_two_launchers() -> None:
    async with AsyncExitStack() as running:
        engine = await running.enter_async_context(FakeEngine())
        twin = await running.enter_async_context(FakeEngine("127.0.0.2", engine.port))
        launcher = await running.enter_async_context(FakeLauncher())
        other = await running.enter_async_context(FakeLauncher("127.0.0.2", launcher.port))
        for one in (launcher, other):
            one.runs(engine.port)
        name = f"vllm:{launcher.port}"
        gateway = await running.enter_async_context(running_gateway(GATEWAY_UPSTREAMS=f"launcher://{name}", wait=False))
        await names_give(gateway, "127.0.0.1", "127.0.0.2")
        await eventually(lambda: ready(gateway) == 2)
        urls = {f"{name}/1/1": engine.url, f"{name}/2/1": f"http://127.0.0.2:{engine.port}"}
        assert labels(gateway) == urls
        assert {known.family for known in gateway.parts.upstreams.engines} == {name}
        answers = [await gateway.client.post(COMPLETIONS, json=PROMPT) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        assert len(engine.calls) == len(twin.calls) == 2
        await names_give(gateway)
        assert labels(gateway) == urls, "a name service that fails takes nobody away"
        await names_give(gateway, "127.0.0.2")
        assert labels(gateway) == {f"{name}/2/1": urls[f"{name}/2/1"]}
        await names_give(gateway, "127.0.0.2", "127.0.0.1")
        await eventually(lambda: ready(gateway) == 2)
        assert labels(gateway) == urls


@pytest.mark.parametrize("written", ["address", "name"])
async def test_ipv6(written: str) -> None:
    async with FakeEngine("::1") as engine, FakeLauncher("::1") as launcher:
        launcher.runs(engine.port)
        upstream = launcher.upstream if written == "address" else f"launcher://vllm:{launcher.port}"
        async with running_gateway(GATEWAY_UPSTREAMS=upstream, wait=False) as gateway:
            if written == "name":
                await names_give(gateway, "::1", "fe80::1%lo")
            await eventually(lambda: ready(gateway) == 1)
            assert list(labels(gateway).values()) == [f"http://[::1]:{engine.port}"]
            assert (await gateway.chat()).status_code == 200


async def test_host_of_both_kinds_of_address_is_one_launcher(launcher: FakeLauncher) -> None:
    upstream = f"launcher://vllm:{launcher.port}"
    async with running_gateway(GATEWAY_UPSTREAMS=upstream, wait=False) as gateway:
        await names_give(gateway, "::1", "127.0.0.1")
        assert [known.address for known in gateway.parts.upstreams.launchers.all] == ["127.0.0.1"]


async def test_engine_is_given_at_once_what_its_launcher_says_that_it_runs(launcher: FakeLauncher) -> None:
    async with FakeEngine() as engine:
        launcher.runs(engine.port, sequences=40)
        async with before(launcher, **ROOM | {"GATEWAY_MAX_IN_FLIGHT": ""}) as gateway:
            await eventually(lambda: ready(gateway) == 1)
            assert await gateway.metric("gateway_in_flight_limit") == 40
            engine.script = hold
            clients = [await gateway.raw(STREAMED) for _ in range(43)]
            await eventually(lambda: len(gateway.parts.admission) == 3)
            assert len(engine.calls) == 40
            for client in clients:
                client.close()
            await assert_quiescent(gateway, engine)


async def test_cards_are_on_the_status_page_each_once_and_without_their_address(
    engine: FakeEngine, launcher: FakeLauncher
) -> None:
    uuid = "GPU-77ab12ef"
    launcher.runs(engine.port)
    launcher.cards = [
        {"uuid": uuid, "name": "NVIDIA H200", "memory_used_bytes": 6 * 10**9, "memory_total_bytes": 141 * 10**9}
    ]
    async with FakeLauncher() as second, FakeEngine() as other:
        # Another launcher on the same card.
        second.runs(other.port)
        second.cards = launcher.cards
        upstreams = f"{launcher.upstream},{second.upstream}"
        async with running_gateway(GATEWAY_UPSTREAMS=upstreams, wait=False) as gateway:
            await eventually(lambda: ready(gateway) == 2)
            gateway.parts.history.take(Totals(), 5.0)
            held = [{**card, "memory_used_bytes": 7 * 10**9} for card in launcher.cards]
            launcher.cards = second.cards = held
            await eventually(lambda: gateway.parts.upstreams.card_bytes() == {uuid: 7 * 10**9})
            gateway.parts.history.take(Totals(), 5.0)
            answer = await gateway.client.get("/status/figures")
            launcher.cards = second.cards = []
            await eventually(lambda: not gateway.parts.upstreams.card_bytes())
            after = (await gateway.client.get("/status/figures")).json()
    assert answer.json()["cards"] == [
        {
            "name": "NVIDIA H200",
            "used_bytes": 7 * 10**9,
            "total_bytes": 141 * 10**9,
            "samples": [6 * 10**9, 7 * 10**9],
        }
    ]
    assert uuid not in answer.text
    assert after["cards"] == []
