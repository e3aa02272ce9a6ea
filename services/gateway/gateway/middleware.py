"""The edge of the application: every request gets an id, one answer, one count and one log line.

A plain ASGI callable: Starlette's BaseHTTPMiddleware would hide the client's disconnect and cost more than
all the rest together.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import ClientDisconnected, GatewayError, InternalError, Outcome, untie
from gateway.metrics import Metrics, route_label
from gateway.request_ids import RequestIds
from gateway.request_log import RequestLog
from gateway.schemas import RELAYED_ROUTES, Exchange, Trace, remember
from gateway.sse import error_event

# Begins the trace of a request, by its headers.
BeginTrace = Callable[[Exchange, Sequence[tuple[bytes, bytes]]], Trace]
_log = logging.getLogger("gateway.edge")
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503
_BAD_REQUEST = 400
_SERVER_FAULT = 500


class Edge:
    """Wraps the application; errors become answers here and nowhere else."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: RequestLog, begin_trace: BeginTrace | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log
        self._begin_trace = begin_trace
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; lifespan messages pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = remember(scope, _new_exchange(scope, self._ids.next()))

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *exchange.headers, *_own_headers(exchange)]
            elif not message.get("more_body", False):
                exchange.answer_complete = True
            await send(message)

        relayed = exchange.route in RELAYED_ROUTES
        if relayed:
            self._metrics.in_flight.inc()
            if self._begin_trace:
                exchange.trace = self._begin_trace(exchange, scope["headers"])
        try:
            await self._serve(scope, receive, send_marked, exchange)
        finally:
            if relayed:
                self._metrics.in_flight.dec()
            self._settle(exchange)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
        try:
            await self._app(scope, receive, send)
        except GatewayError as error:
            await _answer(error, exchange, send)
            untie(error)
        except ClientDisconnected as leaving:
            exchange.outcome = Outcome.DISCONNECTED
            untie(leaving)
        except asyncio.CancelledError:
            exchange.outcome = Outcome.DISCONNECTED
            raise
        except Exception:  # noqa: BLE001  (the edge; logged with its traceback)
            _log.exception("unexpected", extra={"fields": {"request_id": exchange.request_id}})
            await _answer(InternalError(exchange.request_id), exchange, send)

    def _settle(self, exchange: Exchange) -> None:
        finished_at = time.perf_counter()
        outcome = exchange.outcome or _outcome_of(exchange.status)
        self._metrics.settle(exchange, outcome, finished_at)
        if exchange.trace:
            exchange.trace.end(exchange, outcome, finished_at)
        self._log.note(exchange, outcome, finished_at)


class Front:
    """Takes the generations straight to their handler, and everything else to the rest of the application.

    The layers that FastAPI would lead them through cost them a sixth of their CPU time (bench/README.md).
    """

    def __init__(self, generations: ASGIApp, paths: frozenset[str], rest: ASGIApp) -> None:
        self._generations = generations
        self._paths = paths
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._paths:
            await self._generations(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


async def _answer(error: GatewayError, exchange: Exchange, send: Send) -> None:
    """Send an error as the answer, or as the last event of a stream that has begun."""
    exchange.error_code = error.code
    exchange.outcome = _outcome_of(error.status) if error.status == _TOO_MANY_REQUESTS else error.outcome
    if exchange.answer_complete:
        return
    if exchange.status:
        if exchange.streamed:
            await send({"type": "http.response.body", "body": error_event(error)})
        return
    body = error.encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _new_exchange(scope: Scope, engine_request_id: str) -> Exchange:
    request_id = engine_request_id
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            request_id = value.decode("ascii")
    return Exchange(request_id, engine_request_id, route_label(scope["path"]), scope["method"], time.perf_counter())


def _own_headers(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    now = time.perf_counter()
    engine = 0.0
    if exchange.engine_called_at:
        engine = (exchange.engine_answered_at or now) - exchange.engine_called_at
    queue = exchange.queued_seconds
    gateway = max(0.0, now - exchange.received_at - queue - engine)
    timing = f"gateway;dur={gateway * 1000:.2f}, queue;dur={queue * 1000:.2f}, engine;dur={engine * 1000:.2f}"
    return [(b"x-request-id", exchange.request_id.encode("ascii")), (b"server-timing", timing.encode("ascii"))]


def _outcome_of(status: int) -> Outcome:
    """Return the outcome of an answer that no relay and no error has labelled."""
    if status == _TOO_MANY_REQUESTS:
        return Outcome.RATE_LIMITED
    if status == _UNAVAILABLE:
        return Outcome.NOT_READY
    if status >= _SERVER_FAULT:
        return Outcome.INTERNAL_ERROR
    if status >= _BAD_REQUEST:
        return Outcome.CLIENT_ERROR
    return Outcome.OK if status else Outcome.DISCONNECTED
