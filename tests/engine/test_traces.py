"""vLLM's own spans, by ENGINE_OTLP_ENDPOINT: below the span that the gateway names, and without a prompt."""

from collections.abc import Callable

import httpx
import pytest

from tests.engine.conftest import Engine
from tests.fakes.collector import Collector

pytestmark = pytest.mark.engine

TRACE, CALL = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MARKED = "markedprompt42"


def test_a_request_is_a_span_below_the_gateways(start: Callable[..., Engine]) -> None:
    with Collector() as collector:
        engine = start(ENGINE_OTLP_ENDPOINT=collector.url)
        answer = httpx.post(
            f"{engine.url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": MARKED}], "max_tokens": 4},
            headers={"traceparent": f"00-{TRACE}-{CALL}-01"},
            trust_env=False,
            timeout=60,
        )
        assert answer.status_code == 200, answer.text
        collector.wait(lambda: any(span.trace_id == TRACE for span in collector.spans), timeout_seconds=30)
        [span] = [span for span in collector.spans if span.trace_id == TRACE]
        assert (span.service, span.parent_id) == ("ernie-engine", CALL)
        assert span.attributes["gen_ai.usage.completion_tokens"] == 4
        assert span.attributes["gen_ai.latency.time_in_queue"] >= 0
        assert MARKED.encode() not in b"".join(span.raw for span in collector.spans)
