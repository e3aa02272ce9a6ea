"""What the status page is told of the last minutes: differences of sums, by the metrics' own page."""

import pytest
from gateway.errors import Outcome
from gateway.history import KEPT_SAMPLES, KEPT_TROUBLES, TROUBLES, History, Totals, read_totals
from gateway.metrics import Metrics
from gateway.schemas import Exchange, Route
from prometheus_client import CollectorRegistry


def troubles(**counts: float) -> tuple[float, ...]:
    return tuple(counts.get(outcome.value, 0.0) for outcome in TROUBLES)


@pytest.fixture
def history() -> History:
    return History(CollectorRegistry())


def test_a_sample_is_what_came_since_the_last(history: History) -> None:
    history.take(Totals(tokens=100, first_tokens=2, first_token_seconds=1.0, waiting=3, in_flight=4), 5.0)
    history.take(Totals(tokens=150, first_tokens=4, first_token_seconds=1.5), 5.0)
    first, second = history.samples
    assert (first.tokens_per_second, first.first_token_seconds, first.waiting, first.in_flight) == (20.0, 0.5, 3, 4)
    assert (second.tokens_per_second, second.first_token_seconds, second.waiting) == (10.0, 0.25, 0)


def test_a_sample_holds_what_cards_hold() -> None:
    held = {"GPU-1": 5}
    history = History(CollectorRegistry(), lambda: dict(held))
    history.take(Totals(), 5.0)
    held.clear()
    history.take(Totals(), 5.0)
    assert [sample.card_bytes for sample in history.samples] == [{"GPU-1": 5}, {}]


def test_without_a_stream_there_is_no_first_token(history: History) -> None:
    history.take(Totals(tokens=100), 5.0)
    assert history.samples[0].first_token_seconds is None


def test_troubles_are_told_by_kind_and_number(history: History) -> None:
    history.take(Totals(troubles=troubles(timeout=2, overloaded=1)), 5.0)
    history.take(Totals(troubles=troubles(timeout=2, overloaded=4)), 5.0)
    told = [(trouble.outcome, trouble.count) for trouble in history.troubles]
    assert told == [(Outcome.TIMEOUT, 2), (Outcome.OVERLOADED, 1), (Outcome.OVERLOADED, 3)]
    assert [sample.troubles for sample in history.samples] == [3, 3]


def test_a_process_that_is_gone_takes_its_counts_with_it_and_nothing_turns_negative(history: History) -> None:
    history.take(Totals(tokens=100, troubles=troubles(timeout=5)), 5.0)
    history.take(Totals(tokens=10), 5.0)
    assert (history.samples[-1].tokens_per_second, history.samples[-1].troubles) == (0, 0)
    assert len(history.troubles) == 1


def test_no_more_is_kept_than_is_shown(history: History) -> None:
    for number in range(1, 3 * KEPT_SAMPLES):
        history.take(Totals(troubles=troubles(timeout=number)), 5.0)
    assert (len(history.samples), len(history.troubles)) == (KEPT_SAMPLES, KEPT_TROUBLES)


def test_totals_are_those_of_the_metrics() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)

    def settle(route: Route, outcome: Outcome, tokens: int = 0) -> None:
        exchange = Exchange("id", "id", route, "POST", 100.0, completion_tokens=tokens, prompt_tokens=1000)
        if tokens:
            exchange.streamed = True
            exchange.engine_answered_at = exchange.answer_started_at = 100.25
        metrics.settle(exchange, outcome, 101.0)

    settle("chat_completions", Outcome.OK, 30)
    settle("completions", Outcome.TRUNCATED, 12)
    settle("chat_completions", Outcome.RATE_LIMITED)
    settle("models", Outcome.NOT_READY)
    settle("other", Outcome.CLIENT_ERROR)
    metrics.in_flight.inc()
    totals = read_totals(registry.collect())
    assert totals == Totals(42, 2, 0.5, 0, 1, troubles(truncated=1, rate_limited=1))
