"""Whose turn it is: the client that has had the least work done goes next; within a client, who came first.

A virtual token counter for each client, as in Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024):
it grows by the work that is begun for the client, and is put right when the work is known. A client that has nothing
waiting saves next to nothing up: when it comes back, it is lifted to just before where the others are served.
"""

import bisect
import heapq
import math
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

# Work of clients that have nothing here any more is remembered for so many of them: forgetting it is a present.
MOST_REMEMBERED = 4096
# Who comes back may ask for so much, in requests like the one it comes with, before it takes turns: who asks for less
# than its part asks for two at once now and then, and would find the turn of whoever takes the rest between them.
SAVED_REQUESTS = 2
# As long as this ago another client has begun something, there are others.
SHARED_SECONDS = 10.0
# How long an order that was worked out is told, for each request in it: working it out again takes 1 to 2 µs for each.
ORDER_SECONDS = 0.0001


@dataclass(slots=True, eq=False)
class Share:
    """One client's work so far, in tokens, what it has waiting, oldest first, and how many places it has."""

    client: str
    work: float = -math.inf
    waiting: "list[Turn]" = field(default_factory=list)
    running: int = 0


@dataclass(slots=True, eq=False)
class Turn:
    """A request; `cost` is the work that it is expected to be, `places` how many sequences it is to an engine."""

    share: Share
    received_at: float
    cost: float
    places: int
    # The model that it has to be an engine of; empty where any will do.
    model: str


class Shares:
    """The clients that have something running or waiting, and the few whose work must not be forgotten yet."""

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}
        self._waiting: dict[str, Share] = {}
        self._idle: dict[str, None] = {}
        self._models: Counter[str] = Counter()
        self._running = 0
        self._busy: dict[str, Share] = {}
        # Which client began last, when it did, and when one did that was another.
        self._latest = ""
        self._latest_at = self._other_at = -math.inf
        # Where service has come: the work of the client that was served last, when it was its turn.
        self._served_at = 0.0
        self._order: dict[Turn, int] = {}
        self._order_until = 0.0

    def __len__(self) -> int:
        return self._models.total()

    @property
    def clients(self) -> int:
        """How many have something running or waiting."""
        return len(self._shares) - len(self._idle)

    def of(self, client: str, cost: float) -> Share:
        """Return a client's share, as one comes that should cost so much; if it has nothing waiting, it is lifted."""
        share = self._shares.get(client) or Share(client)
        if not share.waiting:
            share.work = max(share.work, self._floor(SAVED_REQUESTS * cost))
        return share

    def add(self, turn: Turn) -> None:
        """Let a request wait, behind those of its client that came before it."""
        share = turn.share
        bisect.insort(share.waiting, turn, key=_arrival)
        self._waiting[share.client] = share
        self._keep(share)
        self._models[turn.model] += 1

    def remove(self, turn: Turn) -> None:
        """Take out a request that waits."""
        share = turn.share
        share.waiting.remove(turn)
        self._models[turn.model] -= 1
        # A request's body must not live on in an order that nobody asks for.
        self._order.pop(turn, None)
        if not share.waiting:
            del self._waiting[share.client]
            self._retire(share)

    def rename(self, turn: Turn, model: str) -> None:
        """Have a request that waits be for an engine of this model."""
        self._models[turn.model] -= 1
        self._models[model] += 1
        turn.model = model

    def are_for(self, model: str) -> bool:
        """Tell whether a request waits that an engine of this model could take, of any for the empty name."""
        return bool(self._models[model] or self._models[""] if model else len(self))

    def next_turn(self, full: Collection[str] = ()) -> Turn | None:
        """Return the request whose turn it is, passing over those for models whose engines are full; None without."""
        if not full and self._waiting:
            return min(self._waiting.values(), key=_standing).waiting[0]
        if all(model in full for model, number in self._models.items() if number):
            return None
        return next(turn for turn in self._in_order() if turn.model not in full)

    def begin(self, turn: Turn) -> None:
        """Charge a request that is begun now, and count it as running."""
        share = turn.share
        self._served_at = max(self._served_at, share.work)
        share.work += turn.cost
        self._running += turn.places
        share.running += turn.places
        self._busy[share.client] = share
        if share.client != self._latest:
            self._latest, self._other_at = share.client, self._latest_at
        self._latest_at = time.monotonic()
        self._keep(share)

    def end(self, turn: Turn, correction: float) -> None:
        """Note that a request is over, and by how much its work was more than was charged."""
        share = turn.share
        share.work += correction
        share.running -= turn.places
        self._running -= turn.places
        if not share.running:
            del self._busy[share.client]
        self._retire(share)

    def leaves_spare(self, share: Share) -> bool:
        """Tell whether a client has so many running that it leaves the last places to others, if there are any.

        That is more than an equal part of what runs, with one more client that may come, and more than half of what
        the busiest has: who has two at once now and then is not who takes the rest.
        """
        if share.running * (len(self._busy) + 1) <= self._running:
            return False
        other_at = self._other_at if share.client == self._latest else self._latest_at
        if time.monotonic() - other_at >= SHARED_SECONDS:
            return False
        return 2 * share.running > max(busy.running for busy in self._busy.values())

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
            self._order_until = now + ORDER_SECONDS * len(self)
        return self._order[turn]

    def _floor(self, saved: float) -> float:
        """Return where a client comes back: so much before where service has come, or beside the one whose turn it is.

        The latter may have saved more, which is not to be added to.
        """
        floor = self._served_at - saved
        return min(floor, *(share.work for share in self._waiting.values())) if self._waiting else floor

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
        """Remember a client that has nothing here, and forget the one that has had nothing for longest."""
        if share.waiting or share.running:
            return
        self._idle[share.client] = None
        if len(self._idle) > MOST_REMEMBERED:
            forgotten = next(iter(self._idle))
            del self._idle[forgotten], self._shares[forgotten]


def _arrival(turn: Turn) -> float:
    return turn.received_at


def _standing(share: Share) -> tuple[float, int, float]:
    # Of equals, as a newcomer and the one whose turn it is are, the one that has less running.
    return share.work, share.running, share.waiting[0].received_at
