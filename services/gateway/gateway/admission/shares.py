"""Whose turn it is: the client that has had the least work done goes next; within a client, who came first.

A virtual token counter for each client, as in Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024):
it grows by the work that is begun for the client, and is put right when the work is known. A client that has nothing
waiting saves nothing up: when it comes back, it is lifted to where the others are served.
"""

import bisect
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

# Work of clients that have nothing here any more is remembered until the others have caught up, for so many of them.
MOST_REMEMBERED = 4096
# As long as this ago another client has begun something, there are others.
SHARED_SECONDS = 10.0
# How long an order that was worked out is told, for each request in it: working it out again takes 1 to 2 µs for each.
ORDER_SECONDS = 0.0001


@dataclass(slots=True, eq=False)
class Share:
    """One client's work so far, in tokens, what it has waiting, oldest first, and how many of its requests run."""

    client: str
    work: float = 0.0
    waiting: "list[Turn]" = field(default_factory=list)
    running: int = 0


@dataclass(slots=True, eq=False)
class Turn:
    """A request that waits; `cost` is the work that it is expected to be."""

    share: Share
    received_at: float
    cost: float


class Shares:
    """The clients that have something running or waiting, and the few whose work must not be forgotten yet."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}
        self._waiting: dict[str, Share] = {}
        self._idle: dict[str, None] = {}
        self._length = 0
        self._running = self._clients_running = 0
        # Which client began last, and when it was last another one than the one before.
        self._latest = ""
        self._changed_at = -SHARED_SECONDS
        # Where service has come: the work of the client that was served last, when it was its turn.
        self._served_at = 0.0
        self._order: dict[Turn, int] = {}
        self._order_until = 0.0

    def __len__(self) -> int:
        return self._length

    @property
    def clients(self) -> int:
        """How many have something running or waiting."""
        return len(self._shares) - len(self._idle)

    def of(self, client: str) -> Share:
        """Return a client's share, lifted to where the others are served if it has nothing waiting."""
        share = self._shares.get(client) or Share(client)
        if not share.waiting:
            share.work = max(share.work, self._least_work())
        return share

    def add(self, turn: Turn) -> None:
        """Let a request wait, behind those of its client that came before it."""
        share = turn.share
        bisect.insort(share.waiting, turn, key=_arrival)
        self._waiting[share.client] = share
        self._keep(share)
        self._length += 1

    def remove(self, turn: Turn) -> None:
        """Take out a request that waits."""
        share = turn.share
        share.waiting.remove(turn)
        self._length -= 1
        # A request's body must not live on in an order that nobody asks for.
        self._order.pop(turn, None)
        if not share.waiting:
            del self._waiting[share.client]
            self._retire(share)

    def next_turn(self) -> Turn:
        """Return the request whose turn it is."""
        return min(self._waiting.values(), key=_standing).waiting[0]

    def begin(self, share: Share, cost: float) -> None:
        """Charge a request that is begun now, and count it as running."""
        self._served_at = max(self._served_at, share.work)
        share.work += cost
        self._clients_running += not share.running
        self._running += 1
        share.running += 1
        if share.client != self._latest:
            self._latest, self._changed_at = share.client, time.monotonic()
        self._keep(share)

    def end(self, share: Share, correction: float) -> None:
        """Note that a request is over, and by how much its work was more than was charged."""
        share.work += correction
        share.running -= 1
        self._running -= 1
        self._clients_running -= not share.running
        self._retire(share)

    def leaves_spare(self, share: Share) -> bool:
        """Tell whether a client has so many running that it leaves the last places to others, if there are any.

        That is more than an equal part of what runs, with one more client that may come.
        """
        if share.running * (self._clients_running + 1) <= self._running:
            return False
        return time.monotonic() - self._changed_at < SHARED_SECONDS

    def heaviest(self) -> Share:
        """Return the client that has the most waiting."""
        return max(self._waiting.values(), key=lambda share: len(share.waiting))

    def place(self, turn: Turn) -> int:
        """Return how many are served until this one is, itself included, should nobody come and costs be as expected.

        For a long queue the answer may be some tenths of a second old.
        """
        now = time.monotonic()
        if now > self._order_until or turn not in self._order:
            self._order = {waiting: place for place, waiting in enumerate(self._in_order(), start=1)}
            self._order_until = now + ORDER_SECONDS * self._length
        return self._order[turn]

    def _least_work(self) -> float:
        """Return where service is: with the one whose turn it is, or where it was when nobody waits."""
        if not self._waiting:
            return self._served_at
        return min(self._served_at, *(share.work for share in self._waiting.values()))

    def _in_order(self) -> Iterator[Turn]:
        shares = list(self._waiting.values())
        heap = [(*_standing(share), number, 0) for number, share in enumerate(shares)]
        heapq.heapify(heap)
        while heap:
            work, running, _, number, index = heap[0]
            waiting = shares[number].waiting
            yield waiting[index]
            if index + 1 < len(waiting):
                following = work + waiting[index].cost, running, waiting[index + 1].received_at, number, index + 1
                heapq.heapreplace(heap, following)
            else:
                heapq.heappop(heap)

    def _keep(self, share: Share) -> None:
        self._shares[share.client] = share
        self._idle.pop(share.client, None)

    def _retire(self, share: Share) -> None:
        """Forget a client that has nothing here, at once if its work no longer counts."""
        if share.waiting or share.running:
            return
        if share.work > self._served_at:
            self._idle[share.client] = None
            if len(self._idle) <= MOST_REMEMBERED:
                return
            share = self._shares[next(iter(self._idle))]
        self._idle.pop(share.client, None)
        del self._shares[share.client]


def _arrival(turn: Turn) -> float:
    return turn.received_at


def _standing(share: Share) -> tuple[float, int, float]:
    # Of equals, as a newcomer and the one whose turn it is are, the one that has less running.
    return share.work, share.running, share.waiting[0].received_at
