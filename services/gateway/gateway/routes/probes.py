"""What orchestrators and Prometheus ask: `/livez`, `/readyz`, `/metrics`. Never counted against anybody."""

from collections.abc import Awaitable, Callable

from fastapi import Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gateway.agreement import Agreement
from gateway.readiness import Readiness


def livez_route() -> Callable[[], Awaitable[Response]]:
    """Return the route that says that the process serves requests, and nothing of engines."""

    async def livez() -> Response:
        return PlainTextResponse("alive\n")

    return livez


def readyz_route(readiness: Readiness, agreement: Agreement) -> Callable[..., Awaitable[Response]]:
    """Return the route that says whether an engine has proved itself, and with `?verbose` what each is at."""

    async def readyz(verbose: str | None = None) -> Response:
        error = readiness.error()
        content = {} if verbose is None else readiness.report(agreement.notes).model_dump()
        if error is None:
            return JSONResponse({"status": "ready"} | content)
        return JSONResponse(error.body | content, error.status, headers=error.headers)

    return readyz


def metrics_route(registry: CollectorRegistry) -> Callable[[], Awaitable[Response]]:
    """Return the route that shows the metrics."""

    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return metrics
