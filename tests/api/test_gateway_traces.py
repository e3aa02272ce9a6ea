"""Traces by setting: what a collector gets of a request, what the engine is told, and that neither costs a request."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.fakes.call import Call
from tests.fakes.collector import Collector, ReceivedSpan
from tests.fakes.engine import FakeEngine, hold
from tests.fakes.gateway import CHAT, STREAMED, eventually, running_gateway
from tests.fakes.scripts import midway

SERVER, CLIENT = 2, 3
CHAT_SPAN, CALL_SPAN = "POST /v1/chat/completions", "chat ernie-demo"
CLIENTS_TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS_SPAN = "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{CLIENTS_TRACE}-{CLIENTS_SPAN}-01"}
SECRET = "the butler did it"  # noqa: S105  (a phrase to look for)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


def one(spans: list[ReceivedSpan]) -> ReceivedSpan:
    [span] = spans
    return span


def is_kept(traceparent: str) -> bool:
    """Read the flag by which whoever began a trace says that it is kept."""
    return bool(int(traceparent.rpartition("-")[2], 16) & 1)


async def test_a_stream_is_one_span_with_the_engines_part_below_it(engine: FakeEngine, collector: Collector) -> None:
    before = time.time_ns()
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url) as gateway:
        await gateway.chat(STREAMED, headers={"x-request-id": "find-me"})
        call = engine.calls[-1]
    own, below = one(collector.named(CHAT_SPAN)), one(collector.named(CALL_SPAN))
    assert (own.service, own.kind, own.parent_id, own.is_error) == ("ernie-gateway", SERVER, "", False)
    assert own.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "ernie.request_id": "find-me",
        "ernie.outcome": "ok",
    }
    assert (below.kind, below.trace_id, below.parent_id) == (CLIENT, own.trace_id, own.span_id)
    assert below.attributes["gen_ai.operation.name"] == "chat"
    assert below.attributes["gen_ai.provider.name"] == "vllm"
    assert below.attributes["gen_ai.request.model"] == "ernie-demo"
    assert below.attributes["gen_ai.request.stream"] is True
    assert below.attributes["gen_ai.usage.output_tokens"] > 0
    assert 0 < below.attributes["gen_ai.response.time_to_first_chunk"] < 5
    assert before <= own.began_ns <= below.began_ns <= below.ended_ns <= own.ended_ns <= time.time_ns()
    # The engine's own spans hang below ours.
    parent = call.header("traceparent") or ""
    assert parent.startswith(f"00-{own.trace_id}-{below.span_id}-")
    assert is_kept(parent)
    assert below.attributes["ernie.engine_request_id"] == call.header("x-request-id")


async def test_no_text_of_anybody_is_in_a_span(engine: FakeEngine, collector: Collector) -> None:
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url) as gateway:
        body = {**STREAMED, "messages": [{"role": "user", "content": SECRET}], "user": SECRET, "stop": [SECRET]}
        await gateway.chat(body, headers={"user-agent": SECRET, "x-forwarded-for": "203.0.113.7"})
        await gateway.chat({**CHAT, "model": SECRET, "temperature": SECRET})
        await gateway.client.put("/v1/chat/completions", content=SECRET)
    assert len(collector.spans) == 3, "what is no generation is in no trace"
    everything = b"".join(span.raw for span in collector.spans)
    for text in (SECRET, "203.0.113.7", "你好"):
        assert text.encode() not in everything


async def test_a_clients_trace_is_continued_only_where_that_is_set(engine: FakeEngine, collector: Collector) -> None:
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url) as gateway:
        await gateway.chat(headers=TRACEPARENT)
        assert CLIENTS_TRACE not in (engine.calls[-1].header("traceparent") or "")
    stranger = one(collector.named(CHAT_SPAN))
    assert (stranger.trace_id == CLIENTS_TRACE, stranger.parent_id) == (False, "")
    collector.spans.clear()
    settings = {"GATEWAY_OTLP_ENDPOINT": collector.url, "GATEWAY_TRACE_CLIENTS": "on"}
    async with running_gateway(engine, **settings) as gateway:
        await gateway.chat(headers=TRACEPARENT)
        await gateway.chat(headers={"traceparent": "00-nonsense"})
        await gateway.chat(headers={"traceparent": f"00-{CLIENTS_TRACE}-{CLIENTS_SPAN}-00"})
    continued, broken = collector.named(CHAT_SPAN)
    assert (continued.trace_id, continued.parent_id) == (CLIENTS_TRACE, CLIENTS_SPAN)
    assert broken.parent_id == "", "the third was not to be kept, by the client's own word"


async def test_a_share_of_none_keeps_none_and_says_so_to_the_engine(engine: FakeEngine, collector: Collector) -> None:
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url, GATEWAY_TRACE_SHARE="0") as gateway:
        assert (await gateway.chat()).status_code == 200
        assert not is_kept(engine.calls[-1].header("traceparent") or "")
    assert collector.spans == []


async def test_a_wait_for_an_engine_is_a_span(engine: FakeEngine, collector: Collector) -> None:
    limits = {"GATEWAY_MAX_IN_FLIGHT": "1", "GATEWAY_QUEUE_SIZE": "4"}
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url, **limits) as gateway:
        engine.script = hold
        first = asyncio.create_task(gateway.chat())
        await engine.next_call()
        second = asyncio.create_task(gateway.chat())
        await eventually(lambda: len(gateway.parts.admission))
        first.cancel()
        await engine.next_call(2)
        second.cancel()
        await eventually(lambda: not len(gateway.parts.in_flight))
    waited = one(collector.named("queue"))
    [parent] = [span for span in collector.named(CHAT_SPAN) if span.span_id == waited.parent_id]
    [below] = [span for span in collector.named(CALL_SPAN) if span.trace_id == parent.trace_id]
    assert parent.began_ns <= waited.began_ns <= waited.ended_ns <= below.began_ns + 5_000_000
    assert parent.attributes["ernie.outcome"] == "disconnected"


async def test_an_answer_that_breaks_is_an_error_and_the_clients_fault_is_none(
    engine: FakeEngine, collector: Collector
) -> None:
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url) as gateway:
        await gateway.chat({"messages": "no"})
        engine.script = midway(Call.reset)
        await gateway.chat(STREAMED)
    faulty, broken = collector.named(CHAT_SPAN)
    assert (faulty.is_error, faulty.attributes["ernie.outcome"]) == (False, "client_error")
    assert (broken.is_error, broken.attributes["error.type"]) == (True, "truncated")
    assert one(collector.named(CALL_SPAN)).attributes["error.type"] == "truncated"


@pytest.mark.parametrize("fault", ["away", "silent", "refusing"])
async def test_a_collector_in_trouble_harms_no_request_and_holds_up_no_end(engine: FakeEngine, fault: str) -> None:
    with Collector() as collector:
        url = collector.url
        if fault == "silent":
            collector.hold.clear()
        if fault == "refusing":
            collector.status = 503
        if fault == "away":
            url = "http://127.0.0.1:9"
        async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=url) as gateway:
            for _ in range(20):
                assert (await gateway.chat(STREAMED)).status_code == 200
            stops_at = time.monotonic()
        assert time.monotonic() - stops_at < 10


async def test_probes_are_in_no_trace(engine: FakeEngine, collector: Collector) -> None:
    async with running_gateway(engine, GATEWAY_OTLP_ENDPOINT=collector.url) as gateway:
        for path in ("/livez", "/readyz", "/metrics", "/v1/models", "/status/figures", "/nothing"):
            await gateway.client.get(path)
    assert collector.spans == []


async def test_without_an_endpoint_the_engine_gets_no_trace(engine: FakeEngine) -> None:
    async with running_gateway(engine) as gateway:
        await gateway.chat(headers=TRACEPARENT)
        assert engine.calls[-1].header("traceparent") is None
        assert gateway.parts.tracing is None


def test_what_traces_need_is_loaded_only_where_it_is_asked_for() -> None:
    names = "{'requests', 'opentelemetry.sdk', 'opentelemetry.exporter'}"
    program = f"import sys, gateway.__main__; print({names} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "set()"
