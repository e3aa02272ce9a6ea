"""How many requests an engine is given at a time.

By its own figures: as many as leave next to none in its own queue, where nobody is told a place and who came first
goes first. vLLM publishes how many requests wait there, but not how many it can run: `--max-num-seqs`, which its
launcher tells where it has one, or fewer where its cache does not hold so many. bench/admission holds the comparison
with first-token times as the signal.
"""

import time
from typing import Protocol
from weakref import WeakKeyDictionary

from gateway.admission.learned import Learned
from gateway.upstreams import Engine

# Of what an engine runs, this part is kept free for clients that have less than their part of the places: who asks now
# and then finds one, instead of waiting for an answer of the busy ones to end. Two of them are enough at half load
# (bench/admission), and never more than an eighth.
SPARE_PARTS = 16
SPARE_PLACES, MOST_SPARE_PARTS = 2, 8
# An engine whose spare places are kept is never seen full, and could do more than is known: for a second in every half
# a minute they are not kept.
TRIED_EVERY_SECONDS, TRIED_FOR_SECONDS = 30.0, 1.0


class Capacity(Protocol):
    """Decides whether an engine is given one more."""

    def has_room(self, engine: Engine, running: int, *, spare: bool) -> bool:
        """Tell whether `engine` may have one more, while so many run at all engines together.

        With `spare`, a few places are to be left for others.
        """

    def most(self, engine: Engine) -> int | None:
        """Return how many an engine is given at a time now; None if that is not limited for itself."""

    def note_crowd(self, engine: Engine) -> None:
        """Note that requests wait although this engine is ready."""


class NoLimit:
    """Gives engines all there is."""

    def has_room(self, _engine: Engine, _running: int, *, spare: bool) -> bool:  # noqa: ARG002
        """Tell that there is room."""
        return True

    def most(self, _engine: Engine) -> None:
        """Return that there is no limit."""
        return

    def note_crowd(self, _engine: Engine) -> None:
        """Do nothing about it."""


class NumberInAll:
    """Gives all engines together a fixed number."""

    def __init__(self, number: int) -> None:
        self._number = number

    def has_room(self, _engine: Engine, running: int, *, spare: bool) -> bool:
        """Tell whether fewer than the number run."""
        return running < (self._number - _spare_of(self._number) if spare else self._number)

    def most(self, _engine: Engine) -> None:
        """Return that no engine has a limit of its own."""
        return

    def note_crowd(self, _engine: Engine) -> None:
        """Do nothing about it."""


class EngineFigures:
    """Learns of each engine, look by look, what it runs, and no more than its launcher says if it has one.

    Engines of which neither is known have no limit.
    """

    def __init__(self) -> None:
        self._learned: WeakKeyDictionary[Engine, Learned] = WeakKeyDictionary()

    def has_room(self, engine: Engine, _running: int, *, spare: bool) -> bool:
        """Tell whether an engine has fewer requests than it is known to run."""
        learned = self._known_of(engine)
        if learned is None or engine.outstanding >= learned.most:
            return learned is None
        if not spare or learned.runs is None:
            return True
        if learned.may_do_more and time.monotonic() % TRIED_EVERY_SECONDS < TRIED_FOR_SECONDS:
            return True
        return engine.outstanding < learned.runs - _spare_of(learned.runs)

    def most(self, engine: Engine) -> int | None:
        """Return how many an engine is given, by the latest look at it."""
        learned = self._known_of(engine)
        return learned.most if learned else None

    def note_crowd(self, engine: Engine) -> None:
        """Ask for a look soon at an engine that could do more for all that is known."""
        learned = self._known_of(engine)
        if learned is None or learned.is_full or not learned.may_do_more:
            return
        if learned.runs is None or engine.outstanding >= learned.most:
            engine.attention.set()

    def _known_of(self, engine: Engine) -> Learned | None:
        learned, load = self._learned.get(engine), engine.load
        sequences = engine.told.sequences if engine.told else None
        if sequences and (learned is None or learned.ceiling != sequences):
            learned = self._learned[engine] = Learned.told(sequences)
        elif learned is None and load is not None:
            learned = self._learned[engine] = Learned.from_nothing(load)
        if learned and load and load is not learned.load:
            learned.learn(load)
        return learned


def _spare_of(places: int) -> int:
    return max(places // SPARE_PARTS, min(SPARE_PLACES, places // MOST_SPARE_PARTS))
