"""A sliding window as a log of what was admitted when: in no stretch of its length is there more than the limit.

Of one sixtieth of the window only the last moment and the sum are kept, so a log has at most 61 entries, however
large the limit. What is kept can only be later than what happened: the window is never too generous, and at most a
sixtieth too long.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from gateway.limits.ledger import Standing
from gateway.rates import Rate

SLOTS = 60
# Sums of floats miss by less; who waited exactly as long as told is in.
TOLERANCE_SECONDS = 1e-6
# What a packed log has room for; above any limit.
LARGEST_AMOUNT = 2**32 - 1


@dataclass(slots=True)
class Log:
    """What one client was granted in one window: moments in seconds, oldest first, and the amounts granted then."""

    times: list[float]
    amounts: list[int]

    def drop_before(self, now: float, rate: Rate) -> None:
        """Forget what has left the window."""
        begins = now - rate.seconds + TOLERANCE_SECONDS
        if self.times and self.times[0] <= begins:
            gone = bisect_right(self.times, begins)
            del self.times[:gone], self.amounts[:gone]

    def add(self, now: float, amount: int, rate: Rate) -> None:
        """Enter what was granted now."""
        times = self.times
        if times and (now <= times[-1] or _in_one_slot(times[-1], now, rate)):
            times[-1] = max(times[-1], now)
            self.amounts[-1] = min(self.amounts[-1] + amount, LARGEST_AMOUNT)
        else:
            times.append(now)
            self.amounts.append(amount)

    def correct(self, granted_at: float, by: int, now: float, rate: Rate) -> None:
        """Change what was granted at a moment, once it is known what was used.

        What was too much is given back as long as it is in the window. What was too little counts from now on: charged
        to the moment of the grant, what a long answer made would be free again as soon as it is over.
        """
        if by > 0:
            self.add(now, min(by, LARGEST_AMOUNT), rate)
            return
        at = bisect_left(self.times, granted_at)
        if at < len(self.times) and _in_one_slot(self.times[at], granted_at, rate):
            self.amounts[at] = max(0, self.amounts[at] + by)

    def wait(self, amount: int, now: float, rate: Rate) -> float:
        """Return the seconds until an amount of at most the limit is free; 0.0 if it is."""
        excess = sum(self.amounts) + amount - rate.amount
        if excess <= 0:
            return 0.0
        for time, freed in zip(self.times, self.amounts, strict=True):
            excess -= freed
            if excess <= 0:
                return time + rate.seconds - now
        raise ValueError(f"{amount} can never be had of {rate}")

    def standing(self, left: int, wanted: int, now: float, rate: Rate) -> Standing:
        """Return how its client stands, of whom so much is left and so much more is wanted."""
        reset = self.times[-1] + rate.seconds - now if self.times else 0.0
        wait = self.wait(wanted, now, rate) if wanted > left else 0.0
        return Standing(rate.amount, max(0, left), reset, wait)


def _in_one_slot(one: float, other: float, rate: Rate) -> bool:
    return one == other or int(one * SLOTS / rate.seconds) == int(other * SLOTS / rate.seconds)
