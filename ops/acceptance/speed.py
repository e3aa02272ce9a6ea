"""How fast it answers, alone and in company."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ops.acceptance.asking import QUESTIONS, Asker, Reply
from ops.acceptance.check import RAISE_LIMITS, Bounds, Check, Verdict, below, percentile, skipped, without_failure

SERIES, SERIES_AT_ONCE, CROWD = 20, 5, 16
# Requests at each number of streams: enough for a figure, few enough for a client's minute.
THROUGHPUT = {1: 4, 16: 32, 64: 64}


@dataclass
class Measured:
    """What the report draws."""

    series: list[Reply] = field(default_factory=list)
    tokens_per_second: dict[int, float] = field(default_factory=dict)


async def first_reply(asker: Asker, bounds: Bounds) -> Iterable[Check]:
    """The first question's whole answer."""
    name = "first reply"
    reply = await asker.ask(QUESTIONS[0])
    if reply.fault:
        return [without_failure(name, [reply])]
    return [below(name, reply.seconds, bounds.first_reply_seconds)]


async def series(asker: Asker, bounds: Bounds, measured: Measured) -> Iterable[Check]:
    """Twenty questions, five at a time."""
    name = f"{SERIES} questions, {SERIES_AT_ONCE} at a time"
    if not await asker.room_for(SERIES):
        return [skipped(name, "no failure", RAISE_LIMITS, required=True)]
    replies = await asker.many(SERIES, SERIES_AT_ONCE)
    measured.series = replies
    good = [reply for reply in replies if not reply.fault]
    checks = [without_failure(name, replies)]
    if good:
        firsts = [reply.first_token_seconds for reply in good]
        mean = sum(reply.seconds for reply in good) / len(good)
        checks += [
            below(f"{name}: mean", mean, bounds.mean_seconds, strict=True),
            below("first token, the longest of these", max(firsts), bounds.first_token_seconds),
            _shown("first token, p50", f"{1000 * percentile(firsts, 0.5):.0f} ms"),
            _shown("first token, p99", f"{1000 * percentile(firsts, 0.99):.0f} ms"),
        ]
    return checks


async def crowd(asker: Asker) -> Iterable[Check]:
    """Sixteen at once."""
    name = f"{CROWD} at once"
    if not await asker.room_for(CROWD):
        return [skipped(name, "no failure", RAISE_LIMITS, required=True)]
    return [without_failure(name, await asker.many(CROWD, CROWD))]


async def throughput(asker: Asker, measured: Measured) -> Iterable[Check]:
    """Tokens a second with one stream, with 16 and with 64."""
    checks = []
    for streams, requests in THROUGHPUT.items():
        name = f"throughput, {streams} streams" if streams > 1 else "throughput, 1 stream"
        if not await asker.room_for(requests):
            checks.append(skipped(name, "no failure", RAISE_LIMITS))
            continue
        began = time.monotonic()
        replies = await asker.many(requests, streams)
        rate = sum(reply.tokens for reply in replies) / (time.monotonic() - began)
        check = without_failure(name, replies, required=False)
        if check.verdict is Verdict.PASS:
            measured.tokens_per_second[streams] = rate
            check = Check(name, check.limit, f"{rate:.0f} tokens/s", Verdict.PASS)
        checks.append(check)
    return checks


def _shown(name: str, measured: str) -> Check:
    return Check(name, "shown", measured, Verdict.PASS)
