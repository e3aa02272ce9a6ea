"""Something else has the engine's port: it accepts, or does not, and speaks no HTTP."""

import asyncio
import time

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.gateway import (
    CHAT,
    STREAMED,
    RunningGateway,
    assert_quiescent,
    check_retry_after,
    error_of,
    eventually,
    running_gateway,
)
from tests.fakes.peer import Behaviour, DeafPort, Peer, close_at_once, reset_at_once, say_nothing, write

# What the gateway knew of the engine stays true to it: the requests themselves meet the peer.
UNWATCHED = {"GATEWAY_PROBE_INTERVAL_SECONDS": "60"}
TIMES = {"GATEWAY_FIRST_TOKEN_TIMEOUT_SECONDS": "0.3", "GATEWAY_ANSWER_TIMEOUT_SECONDS": "0.3"}

PEERS: dict[str, tuple[Behaviour, int, set[str]]] = {
    "says nothing": (say_nothing, 504, {"upstream_timeout"}),
    "closes at once": (close_at_once, 502, {"upstream_broken"}),
    "resets at once": (reset_at_once, 502, {"upstream_broken"}),
    "writes garbage": (write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), 502, {"upstream_invalid_response"}),
    "writes half a head": (write(b"HTTP/1.1 200 OK\r\ncontent-ty"), 502, {"upstream_broken"}),
    "writes zeros": (write(bytes(100_000)), 502, {"upstream_invalid_response"}),
}


async def comes_back(gateway: RunningGateway, engine: FakeEngine) -> None:
    known, trials = gateway.parts.upstreams.engines[0], len(engine.trials)
    engine.started_at += 1
    await engine.start()

    def proved() -> bool:
        known.attention.set()
        return len(engine.trials) > trials and known.takes_requests

    await eventually(proved)
    await assert_quiescent(gateway, engine)


@pytest.mark.parametrize(("behaviour", "status", "codes"), PEERS.values(), ids=PEERS.keys())
async def test_requests_that_meet_another_peer_end_honestly(
    engine: FakeEngine, behaviour: Behaviour, status: int, codes: set[str]
) -> None:
    async with running_gateway(engine, **UNWATCHED, **TIMES) as gateway:
        await engine.stop()
        async with Peer(behaviour, engine.port) as peer:
            for body in (STREAMED, CHAT):
                response = await gateway.chat(body)
                assert response.status_code == status
                assert error_of(response)["code"] in codes
            looks = [connection for connection in peer.accepted if connection.request.startswith(b"GET ")]
            assert len(peer.accepted) - len(looks) == 2, "nothing may be asked twice"
        await comes_back(gateway, engine)


async def test_port_that_accepts_nothing_gives_up_in_time(engine: FakeEngine) -> None:
    async with running_gateway(engine, **UNWATCHED, GATEWAY_CONNECT_TIMEOUT_SECONDS="0.2") as gateway:
        await engine.stop()
        async with DeafPort(engine.port):
            started_at = time.monotonic()
            response = await gateway.chat()
            assert time.monotonic() - started_at < 2
            assert response.status_code == 503
            check_retry_after(response)
        await comes_back(gateway, engine)


@pytest.mark.parametrize("behaviour", [reset_at_once, write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")], ids=["resets", "garbage"])
async def test_engine_whose_port_another_has_is_unreachable(
    engine: FakeEngine, gateway: RunningGateway, behaviour: Behaviour
) -> None:
    await engine.stop()
    async with Peer(behaviour, engine.port):
        await gateway.becomes("unreachable")
        assert (await gateway.client.get("/readyz")).status_code == 503
    await engine.start()
    await gateway.becomes("ready")
    await assert_quiescent(gateway, engine)


async def test_port_that_accepts_nothing_is_unreachable(engine: FakeEngine) -> None:
    async with running_gateway(engine, GATEWAY_CONNECT_TIMEOUT_SECONDS="0.2", GATEWAY_STALL_SECONDS="0.4") as gateway:
        await engine.stop()
        async with DeafPort(engine.port):
            await gateway.becomes("unreachable")
            await asyncio.wait_for(_named(gateway, "accept connections"), 5)
        await engine.start()
        await gateway.becomes("ready")
        await assert_quiescent(gateway, engine)


async def _named(gateway: RunningGateway, words: str) -> None:
    await eventually(lambda: words in (gateway.parts.upstreams.engines[0].waits_for or ""))
