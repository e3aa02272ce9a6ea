"""The sliding window: never more than the limit in any stretch of its length, and never much less."""

import bisect
import math

import pytest
from gateway.limits.window import SLOTS, TOLERANCE_SECONDS, Log
from gateway.rates import Rate
from hypothesis import given
from hypothesis import strategies as st

MINUTE = Rate(60, 60.0)


def asks(log: Log, now: float, rate: Rate, amount: int = 1) -> float:
    """Ask as a ledger does: enter the amount if it is free, and return the seconds to wait otherwise."""
    log.drop_before(now, rate)
    wait = log.wait(amount, now, rate)
    if not wait:
        log.add(now, amount, rate)
    return wait


def most_in_a_window(times: list[float], seconds: float) -> int:
    """Return the most moments in any stretch of that length, its end excluded."""
    return max(
        (bisect.bisect_left(times, at + seconds - 2 * TOLERANCE_SECONDS) - index for index, at in enumerate(times)),
        default=0,
    )


def test_a_burst_at_the_edge_gets_no_second_burst() -> None:
    log = Log([], [])
    granted = [at for at in (59.9 + number / 1000 for number in range(120)) if not asks(log, at, MINUTE)]
    assert len(granted) == 60
    flood = [60.1 + number / 100 for number in range(12_000)]
    granted += [at for at in flood if not asks(log, at, MINUTE)]
    assert most_in_a_window(granted, 60) == 60


@pytest.mark.parametrize("rate", [Rate(1, 1.0), Rate(5, 1.0), Rate(60, 60.0), Rate(1000, 60.0), Rate(7, 3600.0)])
def test_a_flood_gets_exactly_the_limit_in_every_window(rate: Rate) -> None:
    log, step = Log([], []), rate.seconds / (rate.amount * 10)
    flood = [step * number for number in range(rate.amount * 35)]
    granted = [at for at in flood if not asks(log, at, rate)]
    assert most_in_a_window(granted, rate.seconds) == rate.amount
    assert sum(at < rate.seconds for at in granted) == rate.amount
    # Each window opens at most a sixtieth too late.
    assert len(granted) >= math.floor(3.5 / (1 + 1 / SLOTS)) * rate.amount


@given(
    st.sampled_from([Rate(1, 1.0), Rate(3, 1.0), Rate(20, 60.0), Rate(100, 3600.0)]),
    st.lists(st.tuples(st.floats(0, 0.6), st.integers(1, 5)), max_size=120),
)
def test_no_window_ever_holds_more_than_the_limit(rate: Rate, requests: list[tuple[float, int]]) -> None:
    log, now = Log([], []), 1000.0
    granted: list[float] = []
    for pause, wanted in requests:
        now += pause * rate.seconds
        amount = min(wanted, rate.amount)
        wait = asks(log, now, rate, amount)
        assert 0 <= wait <= rate.seconds
        if not wait:
            granted += [now] * amount
        assert len(log.times) <= SLOTS + 1
        assert most_in_a_window(granted, rate.seconds) <= rate.amount


@given(
    st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 8)), max_size=60),
    st.integers(1, 20),
)
def test_who_waits_as_long_as_told_gets_in_and_not_long_before(requests: list[tuple[float, int]], amount: int) -> None:
    log, now, rate = Log([], []), 50.0, Rate(20, 10.0)
    for pause, wanted in requests:
        now += pause * rate.seconds
        asks(log, now, rate, wanted)
    log.drop_before(now, rate)
    wait = log.wait(amount, now, rate)
    if wait:
        early = Log([*log.times], [*log.amounts])
        assert asks(early, now + wait * 0.99, rate, amount) > 0
    assert asks(log, now + wait, rate, amount) == 0


def test_what_was_too_much_is_given_back_and_what_was_too_little_is_charged() -> None:
    log, rate = Log([], []), Rate(100, 60.0)
    assert asks(log, 10.0, rate, 60) == 0
    assert asks(log, 20.0, rate, 60) == 50
    log.correct(10.0, -50, 20.0, rate)
    assert asks(log, 20.0, rate, 60) == 0
    log.correct(10.0, 30, 30.0, rate)
    assert sum(log.amounts) == 100
    assert log.wait(1, 30.0, rate) == 40


def test_a_correction_after_the_window_gives_nothing_back_and_charges_now() -> None:
    log, rate = Log([], []), Rate(100, 60.0)
    asks(log, 10.0, rate, 60)
    log.drop_before(100.0, rate)
    log.correct(10.0, -50, 100.0, rate)
    assert log.amounts == []
    log.correct(10.0, 500, 100.0, rate)
    assert log.amounts == [500]
    assert log.wait(1, 100.0, rate) == 60


def test_what_a_long_answer_made_is_not_free_as_soon_as_it_is_over() -> None:
    log, rate = Log([], []), Rate(1000, 60.0)
    asks(log, 10.0, rate, 100)
    log.correct(10.0, 2900, 69.0, rate)
    assert log.wait(1, 71.0, rate) == 58, "a whole window from when it was known"


def test_a_correction_finds_what_was_merged_into_one_slot() -> None:
    log, rate = Log([], []), Rate(100, 60.0)
    for at in (10.1, 10.2, 10.9, 11.0):
        asks(log, at, rate, 10)
    assert log.amounts == [30, 10]
    log.correct(10.1, -10, 12.0, rate)
    log.correct(11.0, -10, 12.0, rate)
    assert log.amounts == [20, 0]


def test_a_clock_that_steps_back_loses_nothing() -> None:
    log = Log([], [])
    asks(log, 100.0, MINUTE, 59)
    assert asks(log, 90.0, MINUTE) == 0
    assert asks(log, 90.0, MINUTE) > 0
    assert log.times == [100.0]
