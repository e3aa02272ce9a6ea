"""The ledger in memory and the limits before it: exact, settled, bounded; on a clock of the test's own."""

import gc
import tracemalloc
from dataclasses import replace

import pytest
from gateway.errors import Outcome, RateLimited
from gateway.limits import Limits, MemoryLedger
from gateway.limits.ledger import Claim, Grant
from gateway.limits.limits import used_tokens, whole_seconds
from gateway.limits.memory import NEWCOMERS
from gateway.metrics import Metrics
from gateway.rates import Allowance, Rate
from gateway.schemas import Client, Exchange, Generation
from prometheus_client import CollectorRegistry

ALLOWANCE = Allowance(Rate(60, 60.0), Rate(1000, 60.0), 4)
GENERATION = Generation("/v1/chat/completions", b"x" * 39, stream=True, hide_usage=True, max_tokens=90)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> MemoryLedger:
    return MemoryLedger(clock)


@pytest.fixture
def limits(ledger: MemoryLedger) -> Limits:
    return Limits(ledger, Metrics(CollectorRegistry()))


def exchange() -> Exchange:
    return Exchange("r", "e", "chat_completions", "POST", 0.0)


async def take(ledger: MemoryLedger, client: str, allowance: Allowance, tokens: int = 0) -> bool:
    """Ask, and end at once with all that was reserved."""
    grant = await ledger.reserve(Claim(client, allowance, tokens))
    if grant.verdict.granted:
        ledger.settle(grant, tokens)
    return grant.verdict.granted


async def ask(limits: Limits, client: Client) -> RateLimited | None:
    """Ask for a generation that uses all it reserves; return the refusal if it is refused."""
    asked = exchange()
    try:
        grant = await limits.reserve(asked, client, GENERATION)
    except RateLimited as refusal:
        return refusal
    asked.prompt_tokens, asked.completion_tokens = 10, 90
    limits.settle(grant, asked, GENERATION)
    return None


async def test_exactly_the_limit_and_each_client_for_itself(ledger: MemoryLedger, clock: Clock) -> None:
    few = replace(ALLOWANCE, tokens=None)
    assert [await take(ledger, "a", few) for _ in range(180)].count(True) == 60
    assert [await take(ledger, "b", few) for _ in range(180)].count(True) == 60
    clock.now += 59.9
    assert not await take(ledger, "a", few)
    clock.now += 0.1
    assert [await take(ledger, "a", few) for _ in range(180)].count(True) == 60


async def test_a_refusal_takes_nothing_of_any_limit(ledger: MemoryLedger, clock: Clock) -> None:
    assert await take(ledger, "a", ALLOWANCE, 1000)
    assert [await take(ledger, "a", ALLOWANCE, 1) for _ in range(500)].count(True) == 0
    clock.now += 60
    verdict = (await ledger.reserve(Claim("a", ALLOWANCE, 10))).verdict
    assert verdict.requests is not None
    assert verdict.tokens is not None
    assert (verdict.requests.remaining, verdict.tokens.remaining) == (59, 990)


async def test_streams_at_a_time_are_freed_by_settling(ledger: MemoryLedger) -> None:
    grants = [await ledger.reserve(Claim("a", ALLOWANCE, 1)) for _ in range(5)]
    assert [grant.verdict.granted for grant in grants] == [True] * 4 + [False]
    assert grants[4].verdict.streams_are_out
    assert (await ledger.reserve(Claim("b", ALLOWANCE, 1))).verdict.granted
    ledger.settle(grants[0], 1)
    assert (await ledger.reserve(Claim("a", ALLOWANCE, 1))).verdict.granted


async def test_a_claim_above_the_limit_takes_all_of_it_and_is_charged_in_full(
    ledger: MemoryLedger, clock: Clock
) -> None:
    grant = await ledger.reserve(Claim("a", ALLOWANCE, 5000))
    assert grant.verdict.granted
    assert grant.verdict.reserved_tokens == 1000
    ledger.settle(grant, 3000)
    clock.now += 59
    assert not await take(ledger, "a", ALLOWANCE, 1)
    clock.now += 1
    assert await take(ledger, "a", ALLOWANCE, 1000)


async def test_clients_are_forgotten_when_nothing_of_them_is_left(ledger: MemoryLedger, clock: Clock) -> None:
    for number in range(2000):
        await take(ledger, f"client {number}", ALLOWANCE, 1)
    assert len(ledger) == 2000
    for _ in range(200):
        clock.now += 10
        await take(ledger, "another", ALLOWANCE, 1)
    assert len(ledger) <= 1024 + 1
    assert len(ledger._young) + len(ledger._old) <= 1


async def test_a_limited_client_stays_limited_while_others_come_by_the_thousand(clock: Clock) -> None:
    ledger = MemoryLedger(clock, max_clients=3000)
    few = Allowance(Rate(3, 3600.0), None, None)
    assert [await take(ledger, "limited", few) for _ in range(4)] == [True, True, True, False]
    for number in range(20_000):
        clock.now += 0.1
        await take(ledger, f"client {number}", few)
        assert len(ledger) <= 3001
    assert not await take(ledger, "limited", few)
    # Those who come when it is full share one client's limits; those known have their own.
    assert not await take(ledger, "one more", few)
    assert await take(ledger, "client 7", few)
    verdict = (await ledger.reserve(Claim("one more", few, 0))).verdict
    assert verdict.account == NEWCOMERS
    for _ in range(50):
        clock.now += 3600
        await take(ledger, "limited", few)
    for _ in range(1500):
        await take(ledger, "client 7", replace(few, requests=Rate(10_000, 3600.0)))
    assert (await ledger.reserve(Claim("one more", few, 0))).verdict.account != NEWCOMERS


@pytest.mark.parametrize("form", ["11.22.{}.{}", "2001:db8:{:x}:{:x}::/64"])
async def test_a_million_addresses_would_stay_below_200_mb(ledger: MemoryLedger, form: str) -> None:
    """A million is measured in bench/limits."""
    number = 43_690  # just before its dictionary doubles
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for index in range(number):
            await take(ledger, form.format(index >> 8, index & 255), ALLOWANCE, 300 + index % 100)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ledger) == number
    assert (after - before) / number < 200


async def test_headers_tell_how_the_client_stands(limits: Limits, clock: Clock) -> None:
    asked = exchange()
    grant = await limits.reserve(asked, Client("a", ALLOWANCE), GENERATION)
    assert dict(asked.headers) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"59",
        b"x-ratelimit-reset-requests": b"1m0s",
        b"x-ratelimit-limit-tokens": b"1000",
        b"x-ratelimit-remaining-tokens": b"900",
        b"x-ratelimit-reset-tokens": b"1m0s",
    }
    asked.prompt_tokens, asked.completion_tokens = 7, 5
    limits.settle(grant, asked, GENERATION)
    clock.now += 20
    again = exchange()
    await limits.reserve(again, Client("a", ALLOWANCE), GENERATION)
    assert dict(again.headers)[b"x-ratelimit-remaining-tokens"] == b"888"


async def test_what_is_off_has_no_header_and_no_limit(limits: Limits) -> None:
    asked = exchange()
    assert await limits.reserve(asked, Client("a", Allowance()), GENERATION) is None
    assert asked.headers == []
    await limits.reserve(asked, Client("a", Allowance(streams=2)), GENERATION)
    assert asked.headers == []


@pytest.mark.parametrize("amount", [1, 3, 60])
@pytest.mark.parametrize("seconds", [1.0, 60.0, 3600.0])
async def test_retry_after_is_true_whole_and_never_0(limits: Limits, clock: Clock, amount: int, seconds: float) -> None:
    client = Client("a", Allowance(Rate(amount, seconds), Rate(100 * amount, seconds), None))
    refused = 0
    for step in range(300):
        clock.now += seconds * (step % 7) / (20 * amount)
        if refusal := await ask(limits, client):
            refused += 1
            wait = int(refusal.headers["retry-after"])
            # Never 0, which clients take for "at once", and never longer than the window, when all is free again;
            # that the number is true is what the next call shows.
            assert 1 <= wait <= max(1, seconds)
            assert (refusal.status, refusal.type) == (429, "rate_limit_error")
            clock.now += wait
            assert await ask(limits, client) is None
    assert refused > 1


def test_seconds_are_whole_and_enough() -> None:
    assert [whole_seconds(given) for given in (0.0, 0.2, 1.0, 1.1, 59.99, 60.0)] == [1, 1, 1, 2, 60, 60]


@pytest.mark.parametrize(
    ("cost", "happened"),
    [
        (12, {"outcome": Outcome.OK, "engine_called_at": 1.0, "prompt_tokens": 7, "completion_tokens": 5}),
        (12, {"outcome": Outcome.DISCONNECTED, "engine_called_at": 1.0, "prompt_tokens": 7, "completion_tokens": 5}),
        # A stream that was cut before the figures came: the estimate of its prompt, and the events that came.
        (13, {"outcome": Outcome.DISCONNECTED, "engine_called_at": 1.0, "streamed": True, "completion_tokens": 3}),
        (13, {"outcome": Outcome.TRUNCATED, "engine_called_at": 1.0, "streamed": True, "completion_tokens": 3}),
        (10, {"outcome": Outcome.DISCONNECTED, "engine_called_at": 1.0, "streamed": True}),
        (100, {"outcome": Outcome.DISCONNECTED, "engine_called_at": 1.0}),
        (0, {"outcome": Outcome.DISCONNECTED}),
        (0, {"outcome": None, "engine_called_at": 1.0}),
        (0, {"outcome": Outcome.UPSTREAM_ERROR, "engine_called_at": 1.0, "streamed": True}),
    ],
)
def test_what_was_made_is_charged_and_nothing_else(cost: int, happened: dict[str, object]) -> None:
    ended = exchange()
    for name, value in happened.items():
        setattr(ended, name, value)
    assert used_tokens(ended, GENERATION, 100) == cost


async def test_a_place_given_back_twice_is_an_error(ledger: MemoryLedger) -> None:
    grant: Grant = await ledger.reserve(Claim("a", ALLOWANCE, 1))
    ledger.settle(grant, 1)
    with pytest.raises(ValueError, match="settled once"):
        ledger.settle(grant, 1)
