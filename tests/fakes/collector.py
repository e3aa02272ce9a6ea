"""An OTLP collector on a real socket: takes what OpenTelemetry's exporters send over HTTP, and keeps the spans."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came, ids in hex, times in nanoseconds."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    is_error: bool
    raw: bytes


class Collector:
    """Answers 200, or what `status` says; `hold` lets it be silent instead."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.status = 200
        self.requests = 0
        self.hold = threading.Event()
        self.hold.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests += 1
                collector.hold.wait(30)
                if collector.status == 200 and self.path == "/v1/traces":
                    collector.spans.extend(_spans_in(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.status if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def named(self, name: str) -> list[ReceivedSpan]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def wait(self, is_there: Callable[[], bool], timeout_seconds: float = 20.0) -> None:
        """Wait until what has come suffices."""
        deadline = time.monotonic() + timeout_seconds
        while not is_there():
            assert time.monotonic() < deadline, f"not in time; there are {[span.name for span in self.spans]}"
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _spans_in(body: bytes) -> list[ReceivedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        ReceivedSpan(
            service=next(a.value.string_value for a in group.resource.attributes if a.key == "service.name"),
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            attributes={a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes},
            is_error=span.status.code == 2,
            raw=span.SerializeToString(),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
