"""Traces by OpenTelemetry, for those who set an endpoint: one span a request, its wait and the engine's part below it.

Loaded only where it is asked for. Names are those of the semantic conventions for HTTP and for generative AI
(https://opentelemetry.io/docs/specs/semconv/gen-ai/); prompts and answers are in no span. Spans leave in batches from a
thread of their own with a bounded queue: a collector that is slow or away costs spans, never a request.
"""

import asyncio
import threading
import time
from collections.abc import Sequence

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.errors import Outcome
from gateway.schemas import Exchange

EXPORT_SECONDS = 2.0
LAST_EXPORT_SECONDS = 3.0
_SECOND_NS = 1_000_000_000
_OPERATIONS = {"chat_completions": "chat", "completions": "text_completion"}
_PATHS = {"chat_completions": "/v1/chat/completions", "completions": "/v1/completions"}
# By the conventions a server's span is no error because its client is.
_FAULTS_OF_CLIENTS = frozenset({Outcome.CLIENT_ERROR, Outcome.RATE_LIMITED, Outcome.DISCONNECTED})
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Makes traces; `start` it inside the process that serves, `stop` it before that ends.

    `share` of the traces that begin here are kept. With `continue_clients` a client's `traceparent` is continued, and
    its word on sampling kept; without it every trace begins here.
    """

    def __init__(self, endpoint: str, *, share: float, continue_clients: bool) -> None:
        self._endpoint = endpoint
        self._sampler = ParentBased(TraceIdRatioBased(share))
        self._continue_clients = continue_clients
        self._provider: TracerProvider | None = None
        self._tracer: Tracer = trace.NoOpTracer()

    def start(self) -> None:
        """Begin to send."""
        session = requests.Session()
        # No proxy of the environment may stand in between.
        session.trust_env = False
        exporter = OTLPSpanExporter(f"{self._endpoint}/v1/traces", timeout=EXPORT_SECONDS, session=session)
        resource = Resource.create({SERVICE_NAME: "ernie-gateway"})
        self._provider = TracerProvider(self._sampler, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("gateway")

    async def stop(self) -> None:
        """Send what is left, for 3 s at most: the end of the process waits for no collector."""
        if self._provider is not None:
            last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
            last.start()
            await asyncio.to_thread(last.join, LAST_EXPORT_SECONDS)

    def begin(self, exchange: Exchange, headers: Sequence[tuple[bytes, bytes]]) -> "RequestTrace":
        """Begin the trace of a generation request that has just arrived."""
        context = self._context_in(headers) if self._continue_clients else Context()
        return RequestTrace(self._tracer, exchange, context)

    def _context_in(self, headers: Sequence[tuple[bytes, bytes]]) -> Context:
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in (b"traceparent", b"tracestate")
        }
        return _propagator.extract(carrier, Context())


class RequestTrace:
    """One request's spans: the gateway's own, and for each call of an engine one below it."""

    def __init__(self, tracer: Tracer, exchange: Exchange, context: Context) -> None:
        self._tracer = tracer
        # Moments are taken by a clock that never jumps; spans want the other.
        self._offset_ns = time.time_ns() - int(time.perf_counter() * _SECOND_NS)
        self._operation = _OPERATIONS[exchange.route]
        self._span = tracer.start_span(
            f"POST {_PATHS[exchange.route]}",
            context,
            kind=SpanKind.SERVER,
            start_time=self._moment(exchange.received_at),
            attributes={
                "http.request.method": "POST",
                "http.route": _PATHS[exchange.route],
            },
        )
        self._inside = trace.set_span_in_context(self._span, context)
        self._call: Span | None = None

    def call_engine(self, engine: str, model: str) -> str | None:
        """Begin the part of an engine, by its label and what it serves; return its `traceparent`."""
        self._end_call("upstream_unavailable")
        self._call = self._tracer.start_span(
            f"{self._operation} {model}",
            self._inside,
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": self._operation,
                "gen_ai.provider.name": "vllm",
                "gen_ai.request.model": model,
                "ernie.engine": engine,
            },
        )
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._call, self._inside))
        return carrier.get("traceparent")

    def end(self, exchange: Exchange, outcome: Outcome, finished_at: float) -> None:
        """End what is open, and say how the request went."""
        if exchange.queue_left_at:
            waited = self._tracer.start_span("queue", self._inside, start_time=self._moment(exchange.queue_entered_at))
            waited.end(self._moment(exchange.queue_left_at))
        if self._call is not None:
            self._describe_call(self._call, exchange)
            self._end_call("" if outcome is Outcome.OK else outcome.value, self._moment(finished_at))
        span = self._span
        span.set_attributes({"ernie.request_id": exchange.request_id, "ernie.outcome": outcome.value})
        if exchange.status:
            span.set_attribute("http.response.status_code", exchange.status)
        if outcome is not Outcome.OK and outcome not in _FAULTS_OF_CLIENTS:
            _blame(span, outcome.value)
        span.end(self._moment(finished_at))

    def _describe_call(self, call: Span, exchange: Exchange) -> None:
        call.set_attributes(
            {
                "gen_ai.request.stream": exchange.streamed,
                "gen_ai.usage.input_tokens": exchange.prompt_tokens,
                "gen_ai.usage.output_tokens": exchange.completion_tokens,
                "ernie.engine_request_id": exchange.engine_request_id,
            }
        )
        if exchange.streamed and exchange.engine_answered_at and exchange.engine_called_at:
            waited = exchange.engine_answered_at - exchange.engine_called_at
            call.set_attribute("gen_ai.response.time_to_first_chunk", waited)

    def _end_call(self, fault: str, end_ns: int | None = None) -> None:
        if self._call is None:
            return
        if fault:
            _blame(self._call, fault)
        self._call.end(end_ns)
        self._call = None

    def _moment(self, seconds: float) -> int:
        return int(seconds * _SECOND_NS) + self._offset_ns


def _blame(span: Span, fault: str) -> None:
    span.set_attribute("error.type", fault)
    span.set_status(Status(StatusCode.ERROR))
