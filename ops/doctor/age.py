"""How old the lines of a log are, by the times that they tell themselves; what is long over explains nothing now."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

# Longer than the slowest loop of starts that fail: one may take half an hour.
PRESENT_SECONDS = 3600
_DATED = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?")
_VLLM = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d:\d\d:\d\d)\b")
_LOOKED_AT_CHARACTERS = 200


@dataclass(frozen=True)
class Age:
    """How long ago a line was written, None where nothing tells; and whether what it says is over by now."""

    seconds: float | None
    is_past: bool


def ages_of(lines: Sequence[str], now: datetime, clock: tzinfo | None, *, goes_on: bool) -> list[Age]:
    """Return each line's age; one without a time of its own is as old as the one before it.

    `clock` is the time zone of times that name none, None for this host's. `goes_on`: whoever wrote the log works now.
    Of one that does not, the last lines are the present, however long ago it ended.
    """
    moments = list(_moments(lines, now, clock))
    known = [moment for moment in moments if moment is not None]
    present = now if goes_on or not known else max(known)
    return [
        Age(None, is_past=False)
        if moment is None
        else Age(max(0.0, (now - moment).total_seconds()), (present - moment).total_seconds() > PRESENT_SECONDS)
        for moment in moments
    ]


def in_words(seconds: float) -> str:
    """Return a time span as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _moments(lines: Iterable[str], now: datetime, clock: tzinfo | None) -> Iterator[datetime | None]:
    last: datetime | None = None
    for line in lines:
        last = _read(line[:_LOOKED_AT_CHARACTERS], now, clock) or last
        yield last


def _read(text: str, now: datetime, clock: tzinfo | None) -> datetime | None:
    try:
        if found := _DATED.search(text):
            year, month, day, time, zone = found.groups()
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{time}{zone or ''}")
            return moment if zone else moment.replace(tzinfo=clock).astimezone(UTC)
        if found := _VLLM.search(text):
            month, day, time = found.groups()
            moment = datetime.fromisoformat(f"{now.year}-{month}-{day}T{time}").replace(tzinfo=clock).astimezone(UTC)
            # It tells no year: what would be ahead of us was the year before.
            return moment if moment - now < timedelta(days=1) else moment.replace(year=moment.year - 1)
    except ValueError:
        # It only looks like a date.
        return None
    return None
