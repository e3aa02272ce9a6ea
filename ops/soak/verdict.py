"""Whether anything grew, slowed or broke: the last quarter of the samples against the first after the warm-up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ops.soak.sample import Sample

LEAST_SAMPLES = 12
WARM_UP_SHARE = 0.2
FAULT_SHARE = 0.001
# A part may grow by a share of itself and by an absolute slack: caches fill, pools open, and small numbers jump.
MEMORY_SHARE, MEMORY_SLACK_BYTES = 0.05, 48 * 1024**2
COUNT_SHARE, COUNT_SLACK = 0.10, 32
LATENCY_SHARE, LATENCY_SLACK_SECONDS = 0.5, 0.05


@dataclass(frozen=True)
class Finding:
    """One thing that was held to a limit."""

    name: str
    limit: str
    measured: str
    is_good: bool


def judge(samples: Sequence[Sample]) -> list[Finding]:
    """Return the findings; drift needs some samples, so that a short run has fewer."""
    asked = sum(sample.asked for sample in samples)
    faults = sum(sum(sample.faults.values()) for sample in samples)
    restarts = [service for sample in samples for service in sample.restarted]
    findings = [
        Finding("questions asked", "at least 1", str(asked), asked > 0),
        Finding("faults", f"≤ {FAULT_SHARE:.1%}", f"{faults} of {asked}", faults <= FAULT_SHARE * asked),
        Finding("restarts", "none", ", ".join(restarts) or "none", not restarts),
    ]
    if len(samples) >= LEAST_SAMPLES:
        findings += _drift(samples)
    return findings


def _drift(samples: Sequence[Sample]) -> Iterator[Finding]:
    warm = samples[int(len(samples) * WARM_UP_SHARE) :]
    quarter = max(1, len(warm) // 4)
    first, last = warm[:quarter], warm[-quarter:]
    for service in sorted(set(first[0].usage) & set(last[-1].usage)):
        yield _memory(f"memory of {service}", *(_median(part, service, "memory_bytes") for part in (first, last)))
        yield _count(f"handles of {service}", *(_median(part, service, "handles") for part in (first, last)))
        yield _count(f"threads of {service}", *(_median(part, service, "threads") for part in (first, last)))
    card = [median(sample.card_bytes for sample in part) for part in (first, last)]
    if card[0]:
        yield _memory("memory of the card", *card)
    for name, read in (("first token, p50", "first_token_p50_seconds"), ("answer, p50", "answer_p50_seconds")):
        before, after = (_typical(part, read) for part in (first, last))
        limit = before * (1 + LATENCY_SHARE) + LATENCY_SLACK_SECONDS
        yield Finding(f"{name}, drift", f"≤ {limit:.2f} s", f"{before:.2f} → {after:.2f} s", after <= limit)


def _typical(part: Sequence[Sample], name: str) -> float:
    """The median over the looks in which something was answered."""
    found: list[float] = [getattr(sample, name) for sample in part if getattr(sample, name)]
    return median(found or [0.0])


def _median(part: Sequence[Sample], service: str, name: str) -> float:
    found: list[float] = [getattr(sample.usage[service], name) for sample in part if service in sample.usage]
    return median(found or [0.0])


def _memory(name: str, before: float, after: float) -> Finding:
    limit = before * (1 + MEMORY_SHARE) + MEMORY_SLACK_BYTES
    words = f"{before / 1e6:.0f} → {after / 1e6:.0f} MB"
    return Finding(name, f"≤ {limit / 1e6:.0f} MB", words, after <= limit)


def _count(name: str, before: float, after: float) -> Finding:
    limit = before * (1 + COUNT_SHARE) + COUNT_SLACK
    return Finding(name, f"≤ {limit:.0f}", f"{before:.0f} → {after:.0f}", after <= limit)
