"""One look at the stack under load, and all of them as lines in a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ops.way import Usage


@dataclass(frozen=True)
class Sample:
    """What was seen between the look before and this one; seconds since the start."""

    at_seconds: float
    asked: int
    faults: Mapping[str, int]
    first_token_p50_seconds: float
    answer_p50_seconds: float
    answer_p99_seconds: float
    tokens: int
    usage: Mapping[str, Usage]
    card_bytes: int = 0
    restarted: tuple[str, ...] = field(default_factory=tuple)

    def as_line(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


class Record:
    """The file of samples: written line by line, so that a crash of the soak itself loses the last one only."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(sample.as_line() + "\n")


def restarted(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> tuple[str, ...]:
    """Return the services that started anew, or are gone, between two looks."""
    return tuple(
        service
        for service, usage in before.items()
        if service not in after or after[service].started_at != usage.started_at
    )
