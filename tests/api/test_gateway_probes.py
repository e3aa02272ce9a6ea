"""Probes, metrics and their bounds."""

import asyncio
import socket

from tests.fakes.engine import FakeEngine, after_events, hold
from tests.fakes.gateway import CHAT, STREAMED, RunningGateway, eventually, running_gateway


async def test_probes_tell_the_truth(engine: FakeEngine, gateway: RunningGateway) -> None:
    assert (await gateway.client.get("/livez")).status_code == 200
    ready = await gateway.client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready"}
    report = (await gateway.client.get("/readyz?verbose")).json()
    assert report["ready"] is True
    assert report["draining"] is False
    [known] = report["engines"]
    assert known["engine"] == f"127.0.0.1:{engine.port}"
    assert known["state"] == "ready"
    assert known["models"] == ["ernie-demo"]
    assert known["waits_for"] is None
    assert known["since"].startswith("20")
    await engine.stop()
    await gateway.becomes("unreachable")
    down = await gateway.client.get("/readyz?verbose=1")
    assert down.status_code == 503
    assert down.json()["error"]["code"] == "not_ready"
    assert "accept connections" in down.json()["engines"][0]["waits_for"]
    assert (await gateway.client.get("/livez")).status_code == 200


async def test_streams_are_measured_to_their_last_byte(engine: FakeEngine, gateway: RunningGateway) -> None:
    goes_on = asyncio.Event()

    async def rest(call: object) -> None:
        await goes_on.wait()
        call.chunk(b"data: [DONE]\n\n")  # type: ignore[attr-defined]
        call.end()  # type: ignore[attr-defined]

    engine.script = after_events(1, rest)  # type: ignore[arg-type]
    streaming = asyncio.create_task(gateway.chat(STREAMED))
    await engine.next_call()
    await asyncio.sleep(0.3)
    assert await gateway.metric("gateway_requests_in_flight") == 1
    goes_on.set()
    await streaming
    await eventually(lambda: not len(gateway.parts.in_flight))
    assert await gateway.metric("gateway_requests_in_flight") == 0
    assert await gateway.metric("gateway_request_duration_seconds_sum") >= 0.3
    assert await gateway.metric("gateway_time_to_first_token_seconds_count") == 1
    assert await gateway.metric("gateway_time_to_first_token_seconds_sum") < 0.3
    assert await gateway.metric("gateway_overhead_seconds_count") == 1
    assert await gateway.metric("gateway_overhead_seconds_sum") < 0.1


async def test_nothing_a_client_says_becomes_a_series(engine: FakeEngine, gateway: RunningGateway) -> None:
    async def series() -> set[str]:
        page = (await gateway.client.get("/metrics")).text
        return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}

    before = await series()
    for number in range(100):
        await gateway.client.request("PROPFIND" if number % 2 else "GET", f"/scan/{number}")
        await gateway.chat({**CHAT, "model": f"model-{number}"}, headers={"x-request-id": f"id-{number}"})
    assert await series() == before
    assert await gateway.metric("gateway_requests_total", route="other", outcome="client_error") == 100


async def test_probes_and_scrapes_are_no_generations(gateway: RunningGateway) -> None:
    for _ in range(50):
        await asyncio.gather(*(gateway.client.get(path) for path in ("/livez", "/readyz", "/metrics")))
    assert await gateway.metric("gateway_requests_total", route="livez", outcome="ok") == 50
    assert await gateway.metric("gateway_request_duration_seconds_count") == 0


async def test_name_of_several_addresses_gives_as_many_engines(engine: FakeEngine) -> None:
    found = ["127.0.0.1"]
    name = f"vllm:{engine.port}"

    async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        if not found:
            raise socket.gaierror
        return [(2, 1, 6, "", (address, port)) for address in found]

    async with running_gateway(GATEWAY_UPSTREAMS=f"dns://{name}", wait=False) as gateway:
        asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign, assignment]
        readiness = gateway.parts.readiness

        async def look_up(*addresses: str) -> dict[str, str]:
            found[:] = addresses
            await readiness.look_up()
            return {known.label: known.base_url for known in gateway.parts.upstreams.engines}

        assert await look_up("127.0.0.1") == {f"{name}/1": engine.url}
        await gateway.becomes("ready")
        both = await look_up("127.0.0.1", "127.0.0.2")
        assert set(both) == {f"{name}/1", f"{name}/2"}
        assert await look_up() == both, "a name service that fails takes nobody away"
        engine.script = hold
        client = await gateway.raw(STREAMED)
        await engine.next_call()
        assert await look_up("127.0.0.2") == both, "what it has may finish"
        assert await gateway.metric("gateway_engine_state", engine=f"{name}/1", state="draining") == 1
        assert (await gateway.chat()).status_code == 503
        client.close()
        await eventually(lambda: not len(gateway.parts.in_flight))
        assert set(await look_up("127.0.0.2")) == {f"{name}/2"}
        assert f"{name}/1" not in (await gateway.client.get("/metrics")).text
        assert set(await look_up("127.0.0.1", "127.0.0.2")) == {f"{name}/1", f"{name}/2"}
