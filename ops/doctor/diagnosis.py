"""From evidence to findings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ops.doctor.age import Age
from ops.doctor.signature import LOGS, Signature, Source, Weight

SHOWN_LINES = 3
# What tells of earlier times too.
_KEPT = (*LOGS, Source.LAST_WORDS, Source.DOCKER, Source.KERNEL)

Evidence = Mapping[Source, Sequence[str]]
# Of each line of a source whose lines have one.
Ages = Mapping[Source, Sequence[Age]]
_UNKNOWN = Age(None, is_past=False)


@dataclass(frozen=True)
class Finding:
    """A signature that showed: where, its last lines there, how often, and whether that is over by now.

    `seconds_ago` is when it showed last, None where nothing tells.
    """

    signature: Signature
    source: Source
    lines: tuple[str, ...]
    count: int
    cause: str
    cure: str
    seconds_ago: float | None
    is_past: bool


def diagnose(
    evidence: Evidence, signatures: Iterable[Signature], *, answers: bool, ages: Ages = MappingProxyType({})
) -> list[Finding]:
    """Return what the evidence shows, the present before the past.

    `answers`: the stack answers questions now. What only a log shows is past then, and explains nothing.
    """
    looks = (_look(evidence, ages, signature, answers=answers) for signature in signatures)
    found = [finding for finding in looks if finding]
    present = [finding for finding in found if not finding.is_past]
    exact = [finding for finding in present if finding.signature.weight is not Weight.ECHO]
    # Of consequences what is seen now says more than what a log may have kept for long.
    told = exact or [finding for finding in present if finding.source not in LOGS] or present
    if answers:
        told = [finding for finding in told if finding.signature.weight is Weight.FAULT]
    return told + [finding for finding in found if finding.is_past and finding.signature.weight is Weight.FAULT]


def _look(evidence: Evidence, ages: Ages, signature: Signature, *, answers: bool) -> Finding | None:
    """Return where it shows now; if nowhere, where it showed earlier."""
    past: Finding | None = None
    for source in signature.looks_at:
        lines = evidence.get(source, ())
        hits = [(place, match) for place, line in enumerate(lines) if (match := signature.pattern.search(line))]
        if not hits:
            continue
        last, match = hits[-1]
        age = ages[source][last] if source in ages else _UNKNOWN
        finding = Finding(
            signature,
            source,
            tuple(lines[place] for place, _ in hits[-SHOWN_LINES:]),
            len(hits),
            _fill(signature.cause, match),
            _fill(signature.cure, match),
            age.seconds,
            is_past=age.is_past or (answers and source in _KEPT),
        )
        if not finding.is_past:
            return finding
        past = past or finding
    return past


def _fill(text: str, match: re.Match[str]) -> str:
    groups = {name: value or "" for name, value in match.groupdict().items()}
    return text.format_map(groups) if groups else text
