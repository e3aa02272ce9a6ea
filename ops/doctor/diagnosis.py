"""From evidence to findings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ops.doctor.signature import LOGS, Signature, Source, Weight

SHOWN_LINES = 3

Evidence = Mapping[Source, Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """A signature that showed: where, its last lines there, how often, and whether that is over by now."""

    signature: Signature
    source: Source
    lines: tuple[str, ...]
    count: int
    cause: str
    cure: str
    is_past: bool


def diagnose(evidence: Evidence, signatures: Iterable[Signature], *, answers: bool) -> list[Finding]:
    """Return what the evidence shows, the present before the past.

    `answers`: the stack answers questions now. What only a log shows is past then.
    """
    found = [finding for signature in signatures if (finding := _look(evidence, signature, answers=answers))]
    exact = [finding for finding in found if finding.signature.weight is not Weight.ECHO]
    # Of consequences what is seen now says more than what a log may have kept for long.
    told = exact or [finding for finding in found if finding.source not in LOGS] or found
    if answers:
        told = [finding for finding in told if finding.signature.weight is Weight.FAULT]
    return sorted(told, key=lambda finding: finding.is_past)


def _look(evidence: Evidence, signature: Signature, *, answers: bool) -> Finding | None:
    for source in signature.looks_at:
        hits = [(line, match) for line in evidence.get(source, ()) if (match := signature.pattern.search(line))]
        if hits:
            return Finding(
                signature,
                source,
                tuple(line for line, _ in hits[-SHOWN_LINES:]),
                len(hits),
                _fill(signature.cause, hits[-1][1]),
                _fill(signature.cure, hits[-1][1]),
                is_past=answers and source in (*LOGS, Source.LAST_WORDS, Source.DOCKER, Source.KERNEL),
            )
    return None


def _fill(text: str, match: re.Match[str]) -> str:
    groups = {name: value or "" for name, value in match.groupdict().items()}
    return text.format_map(groups) if groups else text
