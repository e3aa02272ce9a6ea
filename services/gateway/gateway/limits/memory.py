"""The ledger of one process: what every client was granted, in memory, bounded however many there are."""

import time
from collections import deque
from collections.abc import Callable

from gateway.limits.account import Account
from gateway.limits.ledger import Claim, Grant, Verdict
from gateway.limits.window import Log
from gateway.rates import MOST_AMOUNT, Allowance, Rate

# 154 MB (measured: bench/limits). So many within one window are no crowd but an attack.
MAX_CLIENTS = 1_000_000
# What all newcomers are counted by while there are that many, those known keeping what they have. No hash is -1.
NEWCOMERS = -1
# Clients that are kept unpacked though nothing of theirs runs: those who ask again and again are among them.
_UNPACKED = 1024
# Clients that are forgotten with each request, so that forgetting a million holds nobody up.
_FORGOTTEN_AT_ONCE = 32


class MemoryLedger:
    """Counts every client; those that have not asked lately are kept packed, in two generations.

    Whoever is heard of goes to the young one. After the longest window the young become old, and the old, of whom
    nothing can be left in any window, are forgotten. So nobody is forgotten as long as it matters.

    Names are kept as their hashes, which take half the memory. Python makes them with a secret of the process, so none
    can be met on purpose; that two of a million meet by chance has odds of one to 30 million.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_clients: int = MAX_CLIENTS) -> None:
        self._clock = clock
        self._max_clients = max_clients
        self._open: dict[int, Account] = {}
        self._idle: deque[int] = deque()
        self._young: dict[int, bytes] = {}
        self._old: dict[int, bytes] = {}
        self._forgotten: dict[int, bytes] = {}
        self._aged_at = clock()
        self._longest_window = 0.0

    def __len__(self) -> int:
        return len(self._open) + len(self._young) + len(self._old) + len(self._forgotten)

    async def reserve(self, claim: Claim) -> Grant:
        """Grant all of a claim or nothing of it."""
        return Grant(claim, self.decide(claim, claim.allowance))

    def decide(self, claim: Claim, allowance: Allowance, *, grant_anyway: bool = False) -> Verdict:
        """Decide by what the client was granted here; `grant_anyway` enters what was granted elsewhere."""
        now = self._clock()
        self._age(now, allowance.longest_window)
        name = self._name_of(claim.client)
        account = self._open.get(name) or Account.unpack(self._young.get(name) or self._old.get(name))
        requests, tokens = allowance.requests, allowance.tokens
        wanted = min(claim.tokens, tokens.amount) if tokens else 0
        requests_left = _left(account.requests, requests, now)
        tokens_left = _left(account.tokens, tokens, now)
        streams_are_out = allowance.streams is not None and account.running >= allowance.streams
        granted = grant_anyway or (requests_left >= 1 and tokens_left >= wanted and not streams_are_out)
        if granted:
            self._start(name, account)
            if requests:
                account.requests.add(now, 1, requests)
            if tokens:
                account.tokens.add(now, wanted, tokens)
        counted = 1 if granted else 0
        return Verdict(
            granted,
            now,
            name,
            wanted,
            account.requests.standing(requests_left - counted, 1 - counted, now, requests) if requests else None,
            account.tokens.standing(tokens_left - counted * wanted, wanted * (1 - counted), now, tokens)
            if tokens
            else None,
            streams_are_out,
        )

    def settle(self, grant: Grant, used_tokens: int) -> None:
        """Give the place back and put the tokens really used in the place of those reserved."""
        name = int(grant.local.account)
        account = self._open[name]
        if not account.running:
            raise ValueError("a claim is settled once")
        tokens = grant.claim.allowance.tokens
        # Most settlements change something; those of answers as long as was reserved do not.
        if tokens and used_tokens != grant.local.reserved_tokens:
            now = self._clock()
            account.tokens.drop_before(now, tokens)
            account.tokens.correct(grant.local.granted_at, used_tokens - grant.local.reserved_tokens, now, tokens)
        account.running -= 1
        if not account.running and not account.is_idle:
            account.is_idle = True
            self._idle.append(name)
            if len(self._idle) > _UNPACKED:
                self._pack(self._idle.popleft())

    def _pack(self, name: int) -> None:
        """Pack a client that was idle some time ago, if it is now."""
        account = self._open[name]
        account.is_idle = False
        if not account.running:
            del self._open[name]
            if account.requests.times or account.tokens.times:
                self._young[name] = account.pack()

    def _name_of(self, client: str) -> int:
        name = hash(client)
        if len(self) < self._max_clients or name in self._open or name in self._young or name in self._old:
            return name
        return NEWCOMERS

    def _start(self, name: int, account: Account) -> None:
        account.running += 1
        if name not in self._open:
            self._open[name] = account
            self._young.pop(name, None)
            self._old.pop(name, None)

    def _age(self, now: float, window: float) -> None:
        self._longest_window = max(self._longest_window, window)
        if self._forgotten:
            for _ in range(min(len(self._forgotten), _FORGOTTEN_AT_ONCE)):
                self._forgotten.popitem()
        elif now - self._aged_at > self._longest_window:
            self._forgotten, self._old, self._young = self._old, self._young, {}
            self._aged_at = now


def _left(log: Log, rate: Rate | None, now: float) -> int:
    if rate is None:
        return MOST_AMOUNT
    log.drop_before(now, rate)
    return rate.amount - sum(log.amounts)
