"""What a ledger of all clients is asked and answers; there is one in memory and one that gateways share."""

# None of these is changed once made; frozen ones take three times as long to make, and each request makes five.

from dataclasses import dataclass
from typing import Protocol

from gateway.rates import Allowance


@dataclass(slots=True)
class Standing:
    """How a client stands with one limit: what is left, and the seconds until all and until enough is free."""

    limit: int
    remaining: int
    reset_seconds: float
    wait_seconds: float


@dataclass(slots=True)
class Verdict:
    """Whether a request is granted; `requests` and `tokens` are None where they are without limit.

    `granted_at` is the moment in the ledger's own time, `account` what the ledger counts the client by, and
    `reserved_tokens` what was entered: a claim above the limit itself reserves all of it.
    """

    granted: bool
    granted_at: float
    account: int | str
    reserved_tokens: int
    requests: Standing | None
    tokens: Standing | None
    streams_are_out: bool


@dataclass(slots=True)
class Claim:
    """What a request wants: a place among its client's streams, one request, and so many tokens."""

    client: str
    allowance: Allowance
    tokens: int


class Ledger(Protocol):
    """Grants claims and settles them. Each granted claim is settled once, with the tokens really used."""

    async def reserve(self, claim: Claim) -> "Grant":
        """Grant all of a claim or nothing of it."""

    def settle(self, grant: "Grant", used_tokens: int) -> None:
        """Give the place back and put the tokens really used in the place of those reserved."""


@dataclass(slots=True)
class Grant:
    """A claim and what became of it; `shared` is the verdict of the shared ledger, if that gave it."""

    claim: Claim
    local: Verdict
    shared: Verdict | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict that counts."""
        return self.shared or self.local
