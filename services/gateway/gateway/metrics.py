"""The gateway's Prometheus metrics: closed label sets, one registry passed in.

No text from a client ever becomes a label; engines are named by their place in the configuration.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from gateway.cells import Cells
from gateway.errors import Outcome
from gateway.schemas import RELAYED_ROUTES, ROUTES, Exchange, Route
from gateway.series import Series

# From a cached short answer to a long one on two CPU cores.
_DURATION_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_QUEUE_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)


class EngineFigures(Protocol):
    """What is published of an engine."""

    @property
    def label(self) -> str:
        """Its name, from the configuration."""

    @property
    def state(self) -> str:
        """Its state."""

    @property
    def warmup_ttft_seconds(self) -> float | None:
        """What its last warm-up settled at, if there was one."""


class Metrics:
    """Everything the gateway counts, all its processes together; `settle` is called exactly once for each request."""

    def __init__(self, registry: CollectorRegistry, cells: Cells | None = None) -> None:
        self.registry = registry
        self._series = series = Series(cells or Cells())
        registry.register(series)
        self._requests = series.counters(
            "gateway_requests",
            "Requests by how they ended.",
            ("route", "outcome"),
            [(route, outcome) for route in ROUTES for outcome in Outcome],
        )
        self.in_flight = series.level(
            "gateway_requests_in_flight", "Generations whose last byte has not been sent yet."
        )
        self._first_token = series.histogram(
            "gateway_time_to_first_token_seconds",
            "From the request's arrival to the first event of a streamed answer.",
            _FIRST_TOKEN_SECONDS,
        )
        self._duration = series.histogram(
            "gateway_request_duration_seconds",
            "From a generation request's arrival to its last byte.",
            _DURATION_SECONDS,
        )
        self._queue_wait = series.histogram(
            "gateway_queue_wait_seconds",
            "Time that requests which had to wait for an engine have waited.",
            _QUEUE_SECONDS,
        )
        self._overhead = series.histogram(
            "gateway_overhead_seconds",
            "The gateway's own time: checking the body, choosing an engine, passing the first bytes on.",
            _OVERHEAD_SECONDS,
        )
        self._tokens = series.counters(
            "gateway_tokens", "Tokens by the engine's own figures.", ("direction",), [("prompt",), ("completion",)]
        )
        self._aborts = series.counters(
            "gateway_aborts",
            "Generations ended early, by whether the engine's own counters showed that its work had stopped.",
            ("confirmed",),
            [("yes",), ("no",)],
        )
        self._rate_limited = series.counters(
            "gateway_rate_limited",
            "Requests refused, by limit.",
            ("limit",),
            [("requests",), ("tokens",), ("streams",)],
        )
        self.state_degraded = series.flag(
            "gateway_state_degraded",
            "1 while the state that gateways share is away, and each grants its share of the limits.",
        )
        self.edge_disagreement = series.flag(
            "gateway_edge_disagreement",
            "1 if a request of our own through nginx was counted as somebody else; the log says why.",
        )

    def settle(self, exchange: Exchange, outcome: Outcome, finished_at: float) -> None:
        """Count a finished request."""
        self._requests[exchange.route, outcome].inc()
        if exchange.route not in RELAYED_ROUTES:
            return
        self._duration.observe(finished_at - exchange.received_at)
        if exchange.queue_left_at:
            self._queue_wait.observe(exchange.queued_seconds)
        if exchange.prompt_tokens:
            self._tokens["prompt",].inc(exchange.prompt_tokens)
        if exchange.completion_tokens:
            self._tokens["completion",].inc(exchange.completion_tokens)
        if not exchange.answer_started_at or not exchange.engine_answered_at:
            return
        if exchange.streamed:
            self._first_token.observe(exchange.engine_answered_at - exchange.received_at)
        before = exchange.engine_called_at - exchange.body_read_at - exchange.queued_seconds
        after = exchange.answer_started_at - exchange.engine_answered_at
        self._overhead.observe(max(0.0, before) + max(0.0, after))

    def count_aborts(self, number: int, *, confirmed: bool) -> None:
        """Count generations that the gateway ended early."""
        self._aborts["yes" if confirmed else "no",].inc(number)

    def count_rate_limited(self, limit: str) -> None:
        """Count a request refused by one of the limits `requests`, `tokens` and `streams`."""
        self._rate_limited[limit,].inc()

    def show_queue_depth_from(self, depth: Callable[[], int]) -> None:
        """Publish how many requests wait, asked at each scrape."""
        self._series.gauge("gateway_queue_depth", "Requests that wait for an engine to take them.", depth)

    def show_in_flight_limit_from(self, limit: Callable[[], float]) -> None:
        """Publish how many generations engines are given at a time, asked at each scrape."""
        self._series.gauge(
            "gateway_in_flight_limit",
            "Generations that the ready engines are given at a time, learned from their figures; +Inf without such.",
            limit,
        )

    def show_engines_from(
        self, ready: Callable[[], bool], engines: Callable[[], Sequence[EngineFigures]], states: Sequence[str]
    ) -> None:
        """Publish whether requests are taken, and each engine's state and warm-up, asked at each scrape."""
        self._series.gauge("gateway_ready", "1 while at least one engine takes requests.", ready)
        self._series.gauges(
            "gateway_engine_state",
            "1 for the state an engine is in.",
            ("engine", "state"),
            lambda: [((engine.label, state), engine.state == state) for engine in engines() for state in states],
        )
        self._series.gauges(
            "gateway_warmup_ttft_seconds",
            "Time to the first token at the end of the last warm-up.",
            ("engine",),
            lambda: [
                ((engine.label,), seconds)
                for engine in engines()
                if (seconds := engine.warmup_ttft_seconds) is not None
            ],
        )


def route_label(path: str) -> Route:
    """Return the closed label of a path, `other` for everything that is not served."""
    return _ROUTE_OF_PATH.get(path, "other")


_ROUTE_OF_PATH: dict[str, Route] = {
    "/v1/chat/completions": "chat_completions",
    "/v1/completions": "completions",
    "/tokenize": "tokenize",
    "/v1/models": "models",
    "/livez": "livez",
    "/readyz": "readyz",
    "/metrics": "metrics",
    "/status": "status",
    "/status/figures": "status",
    "/status/page.css": "status",
    "/status/page.js": "status",
    "/status/targets": "status",
}
