"""Slows down who guesses passwords, by address."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

# Wrong passwords that cost nothing; each further one doubles the wait.
FREE = 5
FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 900.0
FORGET_SECONDS = 3600.0
# The oldest are forgotten above this, about 2 MB.
ADDRESSES = 10_000


class Throttle:
    """Counts wrong passwords of an address, an IPv6 one by its /64."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Address: wrong ones so far, when the last was, when the next may be.
        self._wrong: OrderedDict[str, tuple[int, float, float]] = OrderedDict()

    def wait_seconds(self, address: str) -> int:
        """Return how long the address has to wait, 0 if it may try."""
        _, _, free_at = self._wrong.get(_group(address), (0, 0.0, 0.0))
        return max(0, math.ceil(free_at - self._clock()))

    def failed(self, address: str) -> None:
        """Count a wrong password, before its answer is known: many at a time are as slow as one after another."""
        now, group = self._clock(), _group(address)
        count, last, _ = self._wrong.pop(group, (0, now, 0.0))
        count = 1 if now - last > FORGET_SECONDS else count + 1
        over = count - FREE
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(over, 20), LONGEST_WAIT_SECONDS) if over >= 0 else 0.0
        self._wrong[group] = (count, now, now + wait)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)

    def succeeded(self, address: str) -> None:
        """Take back what this try counted, and no more: somebody's own password is no licence to guess others'."""
        group = _group(address)
        count, last, _ = self._wrong.get(group, (0, 0.0, 0.0))
        if count > 1:
            self._wrong[group] = (count - 1, last, 0.0)
        else:
            self._wrong.pop(group, None)


def _group(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
