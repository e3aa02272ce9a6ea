"""One thing that was promised, what was measured, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ops.acceptance.asking import Reply

RAISE_LIMITS = (
    "this client's limits refuse it: give this command a key with a tier of its own (docs/operations.md, STACK_API_KEY)"
)


class Verdict(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """`required`: one of those that acceptance stands on, which may not be skipped either."""

    name: str
    limit: str
    measured: str
    verdict: Verdict
    reason: str = ""
    required: bool = False


@dataclass(frozen=True)
class Bounds:
    """What times are held to; on a card those of the promise, without one what a usable chat needs."""

    where: str
    first_reply_seconds: float
    mean_seconds: float
    first_token_seconds: float
    recovery_seconds: float


ON_CARD = Bounds("on a GPU", 1.8, 2.1, 0.3, 300)
ON_CPU = Bounds("without a GPU", 30, 60, 10, 600)


def below(name: str, measured: float, limit: float, unit: str = "s", *, strict: bool = False) -> Check:
    """Return a required check of a figure against its upper limit."""
    is_good = measured < limit if strict else measured <= limit
    sign = "<" if strict else "≤"
    verdict = Verdict.PASS if is_good else Verdict.FAIL
    return Check(name, f"{sign} {limit:g} {unit}", f"{measured:.3g} {unit}", verdict, required=True)


def without_failure(name: str, replies: Sequence[Reply], *, required: bool = True) -> Check:
    """Return a check that no reply failed; refusals for this client's limits skip it."""
    faults = [reply.fault for reply in replies if reply.fault]
    measured = f"{len(replies) - len(faults)} of {len(replies)}"
    if any(reply.is_limited for reply in replies):
        return Check(name, "no failure", measured, Verdict.SKIPPED, RAISE_LIMITS, required)
    verdict = Verdict.FAIL if faults else Verdict.PASS
    return Check(name, "no failure", measured, verdict, "; ".join(sorted(set(faults))), required)


def skipped(name: str, limit: str, reason: str, measured: str = "", *, required: bool = False) -> Check:
    """Return a check that could not be made."""
    return Check(name, limit, measured, Verdict.SKIPPED, reason, required)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which so much of them lies, the nearest that was measured; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
