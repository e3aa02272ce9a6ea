"""What a client of the two generation routes sees when all is well."""

import json
from typing import Any

import openai
import pytest

from tests.fakes.engine import DONE, EVENTS, FakeEngine, completion, usage_event
from tests.fakes.gateway import CHAT, COMPLETIONS, PROMPT, STREAMED, RunningGateway, request_lines, running_gateway

COMPLETION = {"model": "ernie-demo", "prompt": "你好"}


async def test_whole_answer_is_the_engines_bytes(engine: FakeEngine, gateway: RunningGateway) -> None:
    response = await gateway.chat()
    assert response.content == completion()
    assert response.headers["content-type"] == "application/json"


async def test_stream_is_the_engines_bytes_without_the_usage_nobody_asked_for(
    engine: FakeEngine, gateway: RunningGateway
) -> None:
    response = await gateway.chat(STREAMED)
    assert response.content == b"".join([*EVENTS, DONE])
    assert engine.calls[0].json["stream_options"] == {"include_usage": True}
    assert await gateway.metric("gateway_tokens_total", direction="prompt") == 7
    assert await gateway.metric("gateway_tokens_total", direction="completion") == 5


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
async def test_usage_is_hidden_from_whoever_did_not_ask(
    engine: FakeEngine, gateway: RunningGateway, options: Any
) -> None:
    response = await gateway.chat({**STREAMED, "stream_options": options})
    assert response.content == b"".join([*EVENTS, DONE])
    assert engine.calls[0].json == {**STREAMED, "stream_options": {"include_usage": True}}


async def test_usage_that_was_asked_for_is_shown(engine: FakeEngine, gateway: RunningGateway) -> None:
    response = await gateway.chat({**STREAMED, "stream_options": {"include_usage": True}})
    assert response.content == b"".join([*EVENTS, usage_event(7, 5), DONE])
    assert await gateway.metric("gateway_tokens_total", direction="completion") == 5


async def test_body_passes_as_it_came_when_nothing_must_change(engine: FakeEngine, gateway: RunningGateway) -> None:
    body = b' { "messages" : [ {"role":"user","content":"\\u4f60\\ud83d\\ude00 1.0e-2"} ] , "temperature":1.0 }'
    assert (await gateway.client.post("/v1/chat/completions", content=body)).status_code == 200
    assert engine.calls[0].body == body
    streamed = body[:-1] + b',"stream":true}'
    assert (await gateway.client.post("/v1/chat/completions", content=streamed)).status_code == 200
    assert engine.calls[-1].body.replace(b'"stream_options":{"include_usage":true},', b"") == streamed


async def test_legacy_completions_work_in_both_modes(engine: FakeEngine, gateway: RunningGateway) -> None:
    whole = await gateway.client.post("/v1/completions", json=COMPLETION)
    assert whole.content == completion()
    streamed = await gateway.client.post("/v1/completions", json={**COMPLETION, "stream": True})
    assert streamed.content == b"".join([*EVENTS, DONE])
    assert [call.path for call in engine.calls] == ["/v1/completions"] * 2
    assert await gateway.metric("gateway_requests_total", route="completions", outcome="ok") == 2


async def test_stream_has_one_framing_header_and_nothing_of_the_hop(
    engine: FakeEngine, gateway: RunningGateway
) -> None:
    async def script(call: Any) -> None:
        headers = {"connection": "keep-alive", "keep-alive": "timeout=5", "server": "uvicorn", "date": "never"}
        call.head(headers=headers | {"content-type": "text/event-stream", "set-cookie": "a=b", "x-inner": "10.0.0.1"})
        call.chunk(DONE)
        call.end()

    engine.script = script
    client = await gateway.raw(STREAMED)
    head = (await client.head()).lower()
    names = [line.partition(":")[0] for line in head.split("\r\n")[1:] if line]
    assert sorted(names) == [
        "cache-control", "content-type", "date", "server-timing", "transfer-encoding", "x-accel-buffering",
        "x-request-id",
    ]  # fmt: skip
    assert "x-accel-buffering: no" in head
    assert "cache-control: no-cache" in head
    assert "date: never" not in head
    client.close()


async def test_whole_answer_has_one_framing_header(engine: FakeEngine, gateway: RunningGateway) -> None:
    client = await gateway.raw(CHAT)
    head = (await client.head()).lower()
    names = [line.partition(":")[0] for line in head.split("\r\n")[1:] if line]
    assert sorted(names) == ["content-length", "content-type", "date", "server-timing", "x-request-id"]
    client.close()


async def test_engine_gets_no_header_of_the_client(engine: FakeEngine, gateway: RunningGateway) -> None:
    headers = {"authorization": "Bearer secret", "cookie": "a=b", "x-request-id": "mine", "connection": "x-gone"}
    await gateway.chat(headers={**headers, "x-gone": "1", "accept-encoding": "gzip"})
    names = {name.lower() for name, _ in engine.calls[0].headers}
    allowed = {"host", "accept", "accept-encoding", "content-length", "content-type", "user-agent", "x-request-id"}
    allowed.add("x-gateway-request-id")
    assert names <= allowed
    assert engine.calls[0].header("accept-encoding") == "identity"
    assert engine.calls[0].header("x-request-id") != "mine", "two requests of one id would meet in the engine"


async def test_every_answer_carries_id_and_timing(engine: FakeEngine, gateway: RunningGateway) -> None:
    paths = ["/livez", "/readyz", "/readyz?verbose", "/metrics", "/v1/models", "/nowhere", "/v1/completions"]
    responses = [await gateway.client.get(path) for path in paths]
    responses += [await gateway.chat(), await gateway.chat(STREAMED), await gateway.chat({"bad": 1})]
    ids = [response.headers["x-request-id"] for response in responses]
    assert len(set(ids)) == len(ids)
    for response in responses:
        parts = [part.partition(";dur=") for part in response.headers["server-timing"].split(", ")]
        assert [name for name, _, _ in parts] == ["gateway", "queue", "engine"]
        assert all(float(value) >= 0 for _, _, value in parts)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-DEF_1.2:3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ('"', False), ("", False)],
)
async def test_sane_request_ids_are_kept(gateway: RunningGateway, *, sent: str, kept: bool) -> None:
    response = await gateway.chat(headers={"x-request-id": sent})
    assert (response.headers["x-request-id"] == sent) is kept


async def test_least_busy_engine_gets_the_request(engine: FakeEngine) -> None:
    async def hold(call: Any) -> None:
        await call.disconnected.wait()

    async with FakeEngine() as other, running_gateway(engine, other) as gateway:
        engine.script = other.script = hold
        clients = [await gateway.raw(PROMPT, COMPLETIONS) for _ in range(6)]
        for number in range(1, 4):
            await engine.next_call(number)
            await other.next_call(number)
        for client in clients:
            client.close()


async def test_sdk_streams_and_counts(gateway: RunningGateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="none") as sdk:
        models = [model.id async for model in await sdk.models.list()]
        assert models == ["ernie-demo"]
        options = {"stream_options": {"include_usage": True}}
        stream = await sdk.chat.completions.create(**STREAMED, **options)  # type: ignore[call-overload]
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "你好, world 🔥"
        assert chunks[-1].usage.completion_tokens == 5


async def test_models_show_nothing_of_the_engines_disk(gateway: RunningGateway) -> None:
    answer = (await gateway.client.get("/v1/models")).json()
    assert answer == {
        "object": "list",
        "data": [{"id": "ernie-demo", "object": "model", "owned_by": "vllm", "max_model_len": 2048}],
    }


async def test_models_of_several_engines_are_merged(engine: FakeEngine) -> None:
    async with FakeEngine() as other:
        other.models = [*engine.models, {"id": "second", "object": "model"}]
        async with running_gateway(engine, other) as gateway:
            answer = (await gateway.client.get("/v1/models")).json()
            assert [model["id"] for model in answer["data"]] == ["ernie-demo", "second"]


async def test_log_has_one_line_a_request_and_no_text(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gateway.requests")
    secret = {"messages": [{"role": "user", "content": "geheim"}], "stream": True}
    response = await gateway.chat(secret, headers={"authorization": "Bearer geheim"})
    gateway.parts.request_log.flush()
    [fields] = request_lines(caplog.records)
    assert fields["request_id"] == response.headers["x-request-id"]
    assert fields["outcome"] == "ok"
    assert (fields["prompt_tokens"], fields["completion_tokens"]) == (7, 5)
    assert "geheim" not in json.dumps(fields)
