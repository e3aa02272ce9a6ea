"""Puts the parts together: the only place that knows them all, and the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.admission import Admission, EngineFigures, NoLimit, NumberInAll
from gateway.agreement import Agreement
from gateway.drain import Drain
from gateway.errors import GatewayError, InvalidRequest, MethodNotAllowed, NotFound
from gateway.history import History
from gateway.identity import Identity, Keys, KeysError, SharedKeyError, read_or_make
from gateway.limits import Limits, MemoryLedger
from gateway.metrics import Metrics
from gateway.middleware import Edge, Front
from gateway.policy import Clamps, Policy
from gateway.rates import OFF, Allowance
from gateway.readiness import Readiness, StartTimes, WatchTimes
from gateway.relay import InFlight, Relay, RelayTimes, StreamTimes
from gateway.request_log import RequestLog
from gateway.routes import (
    BodyReader,
    Counting,
    Generations,
    livez_route,
    metrics_route,
    models_route,
    readyz_route,
    status_routes,
)
from gateway.settings import Settings, SettingsError
from gateway.upstreams import EngineClient, Upstreams
from gateway.workers import Mirror, Processes, Publisher, Shared, Truth

if TYPE_CHECKING:
    from gateway.limits.valkey import SharedLedger
    from gateway.tracing import Tracing

GENERATIONS = frozenset({"/v1/chat/completions", "/v1/completions"})
_NOT_FOUND = 404
_METHOD_NOT_ALLOWED = 405


class Gateway:
    """The running parts that the server has to know: what to start, and how to stop in order.

    It is one process, or with `common` several: it is made before they are, and each runs its part of it.
    """

    def __init__(self, settings: Settings, common: Shared | None = None) -> None:
        registry = CollectorRegistry()
        registry.register(Processes(common) if common else ProcessCollector(registry=None))
        self.common = common
        self.metrics = Metrics(registry, common.cells if common else None)
        self.request_log = RequestLog()
        self.in_flight = InFlight()
        self.client = EngineClient(settings.connect_timeout_seconds)
        self.upstreams = Upstreams(settings.upstreams)
        self.admission = Admission(
            self.upstreams,
            self.metrics,
            _capacity(settings.max_in_flight),
            size=settings.queue_size,
            timeout_seconds=settings.queue_timeout_seconds,
            tell_seconds=settings.heartbeat_seconds,
            crowd=common.crowd if common else None,
        )
        truth = Truth(self.upstreams, common.engines) if common else None
        self.publisher = Publisher(common, truth) if common and truth else None
        self.mirror = Mirror(common, truth, self.admission.wake) if common and truth else None
        self.readiness = Readiness(
            self.upstreams,
            self.client,
            self.metrics,
            StartTimes(Path(settings.state_dir) if settings.state_dir else None),
            WatchTimes(
                interval=settings.probe_interval_seconds,
                stall=settings.stall_seconds,
                trial=settings.first_token_timeout_seconds,
            ),
            warmup=settings.warmup == "on",
            on_change=self._engines_changed,
        )
        self.identity = _identity(settings)
        self.agreement = Agreement(
            settings.edge_url,
            self.identity.address_of,
            self.identity.name_in,
            self.metrics,
            papers=(common.agreement_token, common.agreement_finding) if common else None,
        )
        memory = MemoryLedger()
        gateways = common.workers if common else 1
        self.shared = self._shared(settings.state_url, memory, gateways) if settings.state_url else None
        self.limits = Limits(self.shared or memory, self.metrics)
        self.tracing = _tracing(settings) if settings.otlp_endpoint else None
        self.history = History(self.metrics.registry, self.upstreams.card_bytes)
        self.drain = Drain(self.readiness, self.in_flight, settings.drain_seconds, common)

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """Keep the engines watched and the session open as long as the application runs."""
        if self.shared:
            await self.shared.start()
        if self.tracing:
            self.tracing.start()
        self.history.start()
        try:
            async with self._following(self.mirror) if self.mirror else self._watching():
                if self.common:
                    self.common.note_serving()
                yield
        finally:
            await self.history.stop()
            if self.shared:
                await self.shared.stop()
            self.client.close()
            if self.tracing:
                await self.tracing.stop()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the engines for the workers."""
        if self.publisher and self.common:
            self.publisher.start()
            self.common.note_serving()
        try:
            async with self._watching():
                yield
        finally:
            if self.publisher:
                self.publisher.stop()
            self.client.close()

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        self.readiness.start()
        self.agreement.start()
        try:
            yield
        finally:
            await self.agreement.stop()
            await self.readiness.stop()

    @asynccontextmanager
    async def _following(self, mirror: Mirror) -> AsyncIterator[None]:
        mirror.start()
        try:
            yield
        finally:
            await mirror.stop()

    def _engines_changed(self) -> None:
        self.admission.wake()
        if self.publisher:
            self.publisher.changed()

    def _shared(self, url: str, memory: MemoryLedger, gateways: int) -> "SharedLedger":
        # Loading its client takes longer than loading half of the gateway, and most gateways are alone.
        from gateway.limits.valkey import SharedLedger  # noqa: PLC0415

        return SharedLedger(url, memory, gateways, self.metrics.state_degraded.set)


@dataclass(frozen=True, slots=True)
class Application:
    """What a server is given (`serve`), FastAPI's part of it, and the running parts behind both."""

    serve: ASGIApp
    control: FastAPI
    gateway: Gateway


def create_app(settings: Settings, common: Shared | None = None) -> Application:
    """Return the application, not running yet; of several processes with what they have in `common`.

    Raises SettingsError for a file that cannot be used.
    """
    gateway = Gateway(settings, common)
    relay = Relay(
        gateway.client,
        gateway.in_flight,
        gateway.admission.admit,
        RelayTimes(
            answer=settings.answer_timeout_seconds,
            stream=StreamTimes(
                first_token=settings.first_token_timeout_seconds,
                idle=settings.idle_timeout_seconds,
                heartbeat=settings.heartbeat_seconds,
            ),
        ),
    )
    policy = Policy(Clamps(max_tokens=settings.max_tokens, max_choices=settings.max_choices))
    bodies = BodyReader(settings.max_body_bytes)
    generations = Generations(gateway.identity, bodies, policy, gateway.limits, relay)
    counting = Counting(
        identity=gateway.identity,
        bodies=bodies,
        policy=policy,
        limits=gateway.limits,
        upstreams=gateway.upstreams,
        client=gateway.client,
    )
    control = FastAPI(
        title="gateway",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # Looking for a telemetry provider in the environment at every request takes 20 µs; we have our own metrics.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        lifespan=gateway.running,
        middleware=[Middleware(Edge, metrics=gateway.metrics, log=gateway.request_log)],
        exception_handlers={HTTPException: _refuse, RequestValidationError: _refuse_query},
        routes=[
            # `Front` takes these; here they are known for the answer to other methods.
            *(Route(path, generations, methods=["POST"]) for path in sorted(GENERATIONS)),
            Route("/tokenize", counting, methods=["POST"]),
            *status_routes(gateway.upstreams, gateway.history),
        ],
    )
    control.add_api_route("/v1/models", models_route(gateway.identity, gateway.upstreams, gateway.agreement))
    control.add_api_route("/livez", livez_route())
    control.add_api_route("/readyz", readyz_route(gateway.readiness, gateway.agreement))
    control.add_api_route("/metrics", metrics_route(gateway.metrics.registry))
    begin_trace = gateway.tracing.begin if gateway.tracing else None
    hot = Edge(generations, gateway.metrics, gateway.request_log, begin_trace)
    return Application(Front(hot, GENERATIONS, control), control, gateway)


def _capacity(max_in_flight: int | str | None) -> NoLimit | NumberInAll | EngineFigures:
    if isinstance(max_in_flight, int):
        return NumberInAll(max_in_flight)
    return NoLimit() if max_in_flight == OFF else EngineFigures()


def _identity(settings: Settings) -> Identity:
    allowance = Allowance(settings.rate_limit_requests, settings.rate_limit_tokens, settings.max_streams_per_client)
    try:
        keys = Keys(Path(settings.api_keys_file), allowance) if settings.api_keys_file else None
    except KeysError as error:
        raise SettingsError(f"GATEWAY_API_KEYS_FILE: {error}") from None
    try:
        chat_ui_key = read_or_make(Path(settings.chat_ui_key_file)) if settings.chat_ui_key_file else None
    except SharedKeyError as error:
        raise SettingsError(f"GATEWAY_CHAT_UI_KEY_FILE: {error}") from None
    return Identity(
        settings.trusted_proxies,
        allowance,
        keys=keys,
        chat_ui_key=chat_ui_key,
        anonymous=settings.anonymous == "on",
    )


def _tracing(settings: Settings) -> "Tracing":
    # Half a second to load, for the few who trace.
    from gateway.tracing import Tracing  # noqa: PLC0415

    return Tracing(settings.otlp_endpoint, share=settings.trace_share, continue_clients=settings.trace_clients == "on")


async def _refuse(_request: Request, exception: Exception) -> NoReturn:
    """Turn the router's refusals into ours; the edge answers them."""
    status = exception.status_code if isinstance(exception, HTTPException) else 0
    headers = dict(exception.headers or {}) if isinstance(exception, HTTPException) else {}
    raise _refusal(status, headers) from None


def _refusal(status: int, headers: dict[str, str]) -> GatewayError:
    if status == _NOT_FOUND:
        return NotFound("There is no such path. Served are /v1/chat/completions, /v1/completions and /v1/models.")
    if status == _METHOD_NOT_ALLOWED:
        return MethodNotAllowed("The path does not take this method.", headers=headers)
    return InvalidRequest("The request is not acceptable.")


async def _refuse_query(_request: Request, _exception: Exception) -> NoReturn:
    raise InvalidRequest("The query is not acceptable. Leave it out.") from None
