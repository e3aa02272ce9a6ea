"""The gateway's Prometheus metrics: closed label sets, one registry passed in.

No text from a client ever becomes a label; engines are named by their place in the configuration.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from gateway.errors import Outcome
from gateway.schemas import RELAYED_ROUTES, ROUTES, Exchange, Route

# From a cached short answer to a long one on two CPU cores.
_DURATION_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FIRST_TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_QUEUE_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_OVERHEAD_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1)


class Metrics:
    """Everything the gateway counts; `settle` is called exactly once for each request."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        ProcessCollector(registry=registry)
        requests = Counter("gateway_requests", "Requests by how they ended.", ("route", "outcome"), registry=registry)
        self._requests = {(route, outcome): requests.labels(route, outcome) for route in ROUTES for outcome in Outcome}
        self.in_flight = Gauge(
            "gateway_requests_in_flight",
            "Generations whose last byte has not been sent yet.",
            registry=registry,
        )
        self._first_token = Histogram(
            "gateway_time_to_first_token_seconds",
            "From the request's arrival to the first event of a streamed answer.",
            buckets=_FIRST_TOKEN_SECONDS,
            registry=registry,
        )
        self._duration = Histogram(
            "gateway_request_duration_seconds",
            "From a generation request's arrival to its last byte.",
            buckets=_DURATION_SECONDS,
            registry=registry,
        )
        self._queue_depth = Gauge(
            "gateway_queue_depth", "Requests that wait for an engine to take them.", registry=registry
        )
        self._in_flight_limit = Gauge(
            "gateway_in_flight_limit",
            "Generations that the ready engines are given at a time, learned from their figures; +Inf without such.",
            registry=registry,
        )
        self._queue_wait = Histogram(
            "gateway_queue_wait_seconds",
            "Time that requests which had to wait for an engine have waited.",
            buckets=_QUEUE_SECONDS,
            registry=registry,
        )
        self._overhead = Histogram(
            "gateway_overhead_seconds",
            "The gateway's own time: checking the body, choosing an engine, passing the first bytes on.",
            buckets=_OVERHEAD_SECONDS,
            registry=registry,
        )
        tokens = Counter("gateway_tokens", "Tokens by the engine's own figures.", ("direction",), registry=registry)
        self._prompt_tokens = tokens.labels("prompt")
        self._completion_tokens = tokens.labels("completion")
        aborts = Counter(
            "gateway_aborts",
            "Generations ended early, by whether the engine's own counters showed that its work had stopped.",
            ("confirmed",),
            registry=registry,
        )
        self._aborts = {True: aborts.labels("yes"), False: aborts.labels("no")}
        limited = Counter("gateway_rate_limited", "Requests refused, by limit.", ("limit",), registry=registry)
        self._rate_limited = {limit: limited.labels(limit) for limit in ("requests", "tokens", "streams")}
        self._state_degraded = Gauge(
            "gateway_state_degraded",
            "1 while the state that gateways share is away, and each grants its share of the limits.",
            registry=registry,
        )
        self._edge_disagreement = Gauge(
            "gateway_edge_disagreement",
            "1 if a request of our own through nginx was counted as somebody else; the log says why.",
            registry=registry,
        )
        self._ready = Gauge("gateway_ready", "1 while at least one engine takes requests.", registry=registry)
        self._engine_state = Gauge(
            "gateway_engine_state", "1 for the state an engine is in.", ("engine", "state"), registry=registry
        )
        self._warmup_ttft = Gauge(
            "gateway_warmup_ttft_seconds",
            "Time to the first token at the end of the last warm-up.",
            ("engine",),
            registry=registry,
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
            self._prompt_tokens.inc(exchange.prompt_tokens)
        if exchange.completion_tokens:
            self._completion_tokens.inc(exchange.completion_tokens)
        if not exchange.answer_started_at or not exchange.engine_answered_at:
            return
        if exchange.streamed:
            self._first_token.observe(exchange.engine_answered_at - exchange.received_at)
        before = exchange.engine_called_at - exchange.body_read_at - exchange.queued_seconds
        after = exchange.answer_started_at - exchange.engine_answered_at
        self._overhead.observe(max(0.0, before) + max(0.0, after))

    def count_aborts(self, number: int, *, confirmed: bool) -> None:
        """Count generations that the gateway ended early."""
        self._aborts[confirmed].inc(number)

    def count_rate_limited(self, limit: str) -> None:
        """Count a request refused by one of the limits `requests`, `tokens` and `streams`."""
        self._rate_limited[limit].inc()

    def show_degraded_from(self, degraded: Callable[[], bool]) -> None:
        """Publish whether the shared state is away, asked at each scrape."""
        self._state_degraded.set_function(degraded)

    def show_disagreement_from(self, disagrees: Callable[[], bool]) -> None:
        """Publish whether nginx and the gateway take one client for another, asked at each scrape."""
        self._edge_disagreement.set_function(disagrees)

    def show_ready_from(self, ready: Callable[[], bool]) -> None:
        """Publish whether requests are taken, asked at each scrape."""
        self._ready.set_function(ready)

    def show_queue_depth_from(self, depth: Callable[[], int]) -> None:
        """Publish how many requests wait, asked at each scrape."""
        self._queue_depth.set_function(depth)

    def show_in_flight_limit_from(self, limit: Callable[[], float]) -> None:
        """Publish how many generations engines are given at a time, asked at each scrape."""
        self._in_flight_limit.set_function(limit)

    def show_engine(self, engine: str, state: str, states: tuple[str, ...]) -> None:
        """Publish an engine's state, one series for each of the closed set of states."""
        for known in states:
            self._engine_state.labels(engine, known).set(known == state)

    def forget_engine(self, engine: str, states: tuple[str, ...]) -> None:
        """Remove the series of an engine that is gone from the name service."""
        for known in states:
            self._engine_state.remove(engine, known)
        self._warmup_ttft.remove(engine)

    def show_warmup(self, engine: str, ttft_seconds: float) -> None:
        """Publish what a warm-up settled at."""
        self._warmup_ttft.labels(engine).set(ttft_seconds)


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
}
