"""How much a client may ask for: rates such as `60/minute`, and the three limits of one client together."""

import re
from dataclasses import dataclass, replace

OFF = "off"
# What a log of a window keeps of a moment, a 32-bit number, is never reached.
MOST_AMOUNT = 1_000_000_000
_UNITS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_RATE = re.compile(rf"([1-9][0-9]{{0,9}})\s*/\s*({'|'.join(_UNITS)})")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` in any stretch of `seconds`."""

    amount: int
    seconds: float

    def __str__(self) -> str:
        unit = next(unit for unit, seconds in _UNITS.items() if seconds == self.seconds)
        return f"{self.amount}/{unit}"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one client may ask for; None is without limit."""

    requests: Rate | None = None
    tokens: Rate | None = None
    streams: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing is limited."""
        return self.requests is None and self.tokens is None and self.streams is None

    def divided_by(self, parts: int) -> "Allowance":
        """Return one part of it, at least one of each."""
        return Allowance(
            replace(self.requests, amount=max(1, self.requests.amount // parts)) if self.requests else None,
            replace(self.tokens, amount=max(1, self.tokens.amount // parts)) if self.tokens else None,
            max(1, self.streams // parts) if self.streams else None,
        )

    @property
    def longest_window(self) -> float:
        """The longer one of the two windows, in seconds."""
        return max(self.requests.seconds if self.requests else 0.0, self.tokens.seconds if self.tokens else 0.0)


def parse_rate(text: str) -> Rate | None:
    """Return the rate that a text such as `60/minute` means, None for `off`; raise ValueError with the cure."""
    if text.strip().lower() == OFF:
        return None
    found = _RATE.fullmatch(text.strip().lower())
    if not found or int(found[1]) > MOST_AMOUNT:
        raise ValueError(f"write a number and a unit such as 60/minute (second, minute, hour or day), or {OFF}")
    return Rate(int(found[1]), _UNITS[found[2]])


def parse_count(text: str) -> int | None:
    """Return a number of streams at a time, None for `off`; raise ValueError with the cure."""
    text = text.strip().lower()
    if text == OFF:
        return None
    if (
        not text.isascii()
        or not text.isdigit()
        or not 1 <= int(text[:10]) <= MOST_AMOUNT
        or len(text) > len("1000000000")
    ):
        raise ValueError(f"write a whole number of 1 or more, or {OFF}")
    return int(text)
