"""What a ledger in memory knows of one client; packed when it has not asked lately."""

import struct
from dataclasses import dataclass
from typing import Self

from gateway.limits.window import Log

_NOTHING = bytes(2)


@dataclass(slots=True)
class Account:
    """What a client was granted of requests and tokens, and how many of its requests run.

    `is_idle` is the ledger's mark on those that wait to be packed.
    """

    requests: Log
    tokens: Log
    running: int = 0
    is_idle: bool = False

    @classmethod
    def unpack(cls, data: bytes | None) -> Self:
        """Return what was packed, or an empty account."""
        data = data or _NOTHING
        first, second = data[0], data[1]
        values = list(struct.unpack_from(f"<{first}d{first}I{second}d{second}I", data, 2))
        middle, last = 2 * first, 2 * first + second
        return cls(Log(values[:first], values[first:middle]), Log(values[middle:last], values[last:]))

    def pack(self) -> bytes:
        """Write the logs as one value, a fifth of what the objects take; what runs is not in it."""
        requests, tokens = self.requests, self.tokens
        first, second = len(requests.times), len(tokens.times)
        values = [*requests.times, *requests.amounts, *tokens.times, *tokens.amounts]
        return struct.pack(f"<BB{first}d{first}I{second}d{second}I", first, second, *values)
