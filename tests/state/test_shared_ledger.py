"""The shared ledger decides as the one in memory does, exactly over several gateways, and outlives its Valkey."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gateway.limits import valkey as shared
from gateway.limits.ledger import Claim, Grant, Verdict
from gateway.limits.memory import MemoryLedger
from gateway.limits.scripts import Scripts
from gateway.limits.valkey import ANSWER_SECONDS, SharedLedger
from gateway.rates import Allowance, Rate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.gateway import eventually
from tests.state.server import Server

FEW = Allowance(Rate(60, 60.0), Rate(100_000, 60.0), None)


@asynccontextmanager
async def ledgers(server: Server, number: int = 1) -> AsyncIterator[list[SharedLedger]]:
    made = [SharedLedger(server.url, MemoryLedger()) for _ in range(number)]
    for ledger in made:
        await ledger.start()
    try:
        yield made
    finally:
        for ledger in made:
            await ledger.stop()


async def settled(*made: SharedLedger) -> None:
    await eventually(lambda: not any(ledger._settling for ledger in made))


async def flood(ledger: SharedLedger, client: str, allowance: Allowance, number: int) -> int:
    grants = await asyncio.gather(*(ledger.reserve(Claim(client, allowance, 10)) for _ in range(number)))
    assert all(grant.shared for grant in grants)
    return sum(grant.verdict.granted for grant in grants)


@pytest.mark.parametrize("gateways", [1, 2, 4])
async def test_the_allowed_count_is_the_limit_over_all_gateways(valkey: Server, gateways: int) -> None:
    async with ledgers(valkey, gateways) as made:
        allowed = await asyncio.gather(*(flood(ledger, "a", FEW, 50) for ledger in made for _ in range(2)))
        assert sum(allowed) == 60
        assert sum(await asyncio.gather(*(flood(ledger, "b", FEW, 20) for ledger in made))) == min(60, 20 * gateways)


async def test_streams_are_counted_over_all_gateways_and_freed_by_settling(valkey: Server) -> None:
    allowance = Allowance(None, None, 3)
    async with ledgers(valkey, 2) as (one, other):
        grants = [await ledger.reserve(Claim("a", allowance, 0)) for ledger in (one, other, one, other)]
        assert [grant.verdict.granted for grant in grants] == [True, True, True, False]
        assert grants[3].verdict.streams_are_out
        one.settle(grants[0], 0)
        await settled(one)
        assert (await other.reserve(Claim("a", allowance, 0))).verdict.granted
        assert not (await other.reserve(Claim("a", allowance, 0))).verdict.granted


async def test_streams_of_a_gateway_that_died_are_free_again(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "LIFETIME_SECONDS", 1.0)
    monkeypatch.setattr(shared, "SIGN_SECONDS", 0.2)
    allowance = Allowance(None, None, 1)
    async with ledgers(valkey, 2) as (dies, lives):
        assert (await dies.reserve(Claim("a", allowance, 0))).verdict.granted
        assert not (await lives.reserve(Claim("a", allowance, 0))).verdict.granted
        assert dies._signing
        dies._signing.cancel()
        ends_at = time.monotonic() + 10
        while not (await lives.reserve(Claim("a", allowance, 0))).verdict.granted:
            assert time.monotonic() < ends_at
            await asyncio.sleep(0.1)


async def test_tokens_are_given_back_and_charged(valkey: Server) -> None:
    allowance = Allowance(None, Rate(1000, 60.0), None)
    async with ledgers(valkey, 2) as (one, other):
        grant = await one.reserve(Claim("a", allowance, 900))
        assert not (await other.reserve(Claim("a", allowance, 200))).verdict.granted
        one.settle(grant, 100)
        await settled(one)
        second = await other.reserve(Claim("a", allowance, 200))
        assert second.verdict.tokens
        assert second.verdict.tokens.remaining == 700
        other.settle(second, 2000)
        await settled(other)
        refused = await one.reserve(Claim("a", allowance, 1))
        assert not refused.verdict.granted
        assert refused.verdict.tokens
        assert 58 < refused.verdict.tokens.wait_seconds <= 60


steps = st.lists(
    st.tuples(st.floats(0, 0.4), st.integers(0, 60), st.none() | st.integers(0, 120)), min_size=1, max_size=25
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps, st.booleans(), st.sampled_from([(10.0, 10.0), (10.0, 40.0), (40.0, 10.0)]))
def test_both_ledgers_agree_at_every_step(
    server_process: Server, happens: list[Any], limited: bool, windows: tuple[float, float]
) -> None:
    """The scripts run on a clock of the test's own here; everything else of them is as it is."""
    allowance = Allowance(Rate(5, windows[0]), Rate(100, windows[1]), 3 if limited else None)
    asyncio.run(compare(server_process, happens, allowance))


def timed_ledger(server: Server, clock: Callable[[], float]) -> SharedLedger:
    """Return the ledger in an empty Valkey whose time is the test's own."""
    server.command("FLUSHALL")
    ledger = SharedLedger(server.url, MemoryLedger(clock))
    scripts = {name: shared._script(name) for name in ("reserve", "settle", "sign")}
    assert all(text.count("redis.call('TIME')") == 1 for text in scripts.values())
    timed = Scripts(
        server.url,
        {name: text.replace("redis.call('TIME')", "({ARGV[#ARGV], '0'})") for name, text in scripts.items()},
        3.0,
    )

    class Timed:
        """Calls a script with the test's time as one more argument."""

        load, close = timed.load, timed.close

        async def run(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
            return await timed.run(name, keys, [*arguments, repr(clock())])

    ledger._scripts = Timed()  # type: ignore[assignment]
    return ledger


async def test_a_clock_that_is_set_back_locks_nobody_out_for_longer_than_the_window(valkey: Server) -> None:
    now = 10_000.0
    allowance = Allowance(Rate(5, 60.0), Rate(100, 60.0), None)
    ledger = timed_ledger(valkey, lambda: now)
    await ledger._give_sign()
    try:
        grants = [await ledger.reserve(Claim("a", allowance, 20)) for _ in range(5)]
        now -= 3600.0
        await ledger._give_sign()
        refused = (await ledger.reserve(Claim("a", allowance, 20))).verdict
        assert refused.requests
        assert refused.tokens
        assert not refused.granted
        assert (refused.requests.wait_seconds, refused.tokens.wait_seconds) == (60.0, 60.0)
        ledger.settle(grants[0], 120)
        await settled(ledger)
        now += 60.0
        await ledger._give_sign()
        assert (await ledger.reserve(Claim("a", allowance, 1))).verdict.requests.remaining == 4
    finally:
        await ledger.stop()


async def compare(server: Server, happens: list[Any], allowance: Allowance) -> None:
    now = 1000.0
    memory = MemoryLedger(lambda: now)
    ledger = timed_ledger(server, lambda: now)
    open_grants: list[tuple[Grant, Grant]] = []
    await ledger._give_sign()
    try:
        for pause, wanted, used in happens:
            now = round(now + pause * allowance.longest_window, 6)
            await ledger._give_sign()
            claim = Claim("a", allowance, wanted)
            mine, theirs = await memory.reserve(claim), await ledger.reserve(claim)
            assert theirs.shared
            assert_same(mine.verdict, theirs.verdict)
            if mine.verdict.granted:
                open_grants.append((mine, theirs))
            if used is not None and open_grants:
                first, second = open_grants.pop(0)
                memory.settle(first, used)
                ledger.settle(second, used)
                await settled(ledger)
    finally:
        await ledger.stop()


def assert_same(mine: Verdict, theirs: Verdict) -> None:
    assert mine.granted is theirs.granted
    assert mine.reserved_tokens == theirs.reserved_tokens
    assert mine.streams_are_out is theirs.streams_are_out
    for one, other in ((mine.requests, theirs.requests), (mine.tokens, theirs.tokens)):
        assert one
        assert other
        assert (one.limit, one.remaining) == (other.limit, other.remaining)
        assert one.reset_seconds == pytest.approx(other.reset_seconds, abs=1e-5)
        assert one.wait_seconds == pytest.approx(other.wait_seconds, abs=1e-5)


async def test_without_valkey_each_gateway_grants_its_share_and_both_come_back(
    own_valkey: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "SIGN_SECONDS", 0.1)
    caplog.set_level(logging.INFO)
    async with ledgers(own_valkey, 2) as made:
        await eventually(lambda: all(ledger._gateways == 2 for ledger in made))
        assert await flood(made[0], "used", FEW, 20) == 20
        own_valkey.stop()
        for ledger in made:
            grants = [await ledger.reserve(Claim("new", FEW, 10)) for _ in range(90)]
            assert sum(grant.verdict.granted for grant in grants) == 30
            assert ledger.degraded
        # What it has granted before counts: going away and coming back gives nobody a fresh budget.
        grants = [await made[0].reserve(Claim("used", FEW, 10)) for _ in range(90)]
        assert sum(grant.verdict.granted for grant in grants) == 10
        own_valkey.start()
        await eventually(lambda: not any(ledger.degraded for ledger in made))
        assert await flood(made[1], "newer", FEW, 90) == 60
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "gateway.limits"]
    assert sorted(said) == sorted([("ERROR", "state_degraded"), ("INFO", "state_shared_again")] * 2)


async def test_a_slow_valkey_costs_a_request_50_ms_once(own_valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "ANSWER_SECONDS", ANSWER_SECONDS)
    monkeypatch.setattr(shared, "SIGN_SECONDS", 60)
    async with ledgers(own_valkey) as (ledger,):
        own_valkey.freeze()
        try:
            times = []
            for _ in range(20):
                began_at = time.perf_counter()
                assert (await ledger.reserve(Claim("a", FEW, 10))).verdict.granted
                times.append(time.perf_counter() - began_at)
        finally:
            own_valkey.thaw()
        assert 0.04 < times[0] < 0.15
        assert max(times[1:]) < 0.02


async def test_a_valkey_that_was_never_there_stops_nothing(own_valkey: Server) -> None:
    own_valkey.stop()
    async with ledgers(own_valkey) as (ledger,):
        assert ledger.degraded
        grants = [await ledger.reserve(Claim("a", FEW, 10)) for _ in range(90)]
        assert sum(grant.verdict.granted for grant in grants) == 60
        own_valkey.start()
        await eventually(lambda: not ledger.degraded)
