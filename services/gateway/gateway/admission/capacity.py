"""How many requests an engine is given at a time.

By its own figures: as many as leave next to none in its own queue, where nobody is told a place and who came first
goes first. vLLM publishes how many requests wait there; how many it can run (`--max-num-seqs`, or what its cache holds)
it does not. bench/admission holds the comparison with first-token times as the signal.
"""

import time
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from gateway.upstreams import Engine, Load

# Few enough for the engines on a small machine; one that can do more is given twice as many at each look.
FIRST = 16
# Of what an engine is given, this part may wait in its own queue, so that what ends in a step is followed in the next.
SLACK_PARTS = 32
# Of what an engine runs, this part is kept free for clients that have less than their part of the places: who asks now
# and then finds one, instead of waiting for an answer of the busy ones to end.
SPARE_PARTS = 16
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
    """Learns of each engine, look by look, what it runs; engines that publish nothing have no limit."""

    def __init__(self) -> None:
        self._learned: WeakKeyDictionary[Engine, _Learned] = WeakKeyDictionary()

    def has_room(self, engine: Engine, _running: int, *, spare: bool) -> bool:
        """Tell whether an engine has fewer requests than it is known to run."""
        most = self.most(engine)
        if most is None or engine.outstanding >= most:
            return most is None
        runs = self._learned[engine].runs
        if not spare or runs is None or time.monotonic() % TRIED_EVERY_SECONDS < TRIED_FOR_SECONDS:
            return True
        return engine.outstanding < runs - _spare_of(runs)

    def most(self, engine: Engine) -> int | None:
        """Return how many an engine is given, by the latest look at it."""
        load = engine.load
        if load is None:
            return None
        learned = self._learned.get(engine)
        if learned is None:
            learned = self._learned[engine] = _Learned(max(FIRST, load.ours), FIRST)
        if load is not learned.load:
            learned.learn(load)
        return learned.most

    def note_crowd(self, engine: Engine) -> None:
        """Ask for a look soon at an engine that could do more for all that is known."""
        learned = self._learned.get(engine)
        if learned is None or learned.is_full:
            return
        if learned.runs is None or engine.outstanding >= learned.most:
            engine.attention.set()


def _spare_of(places: int) -> int:
    return places // SPARE_PARTS


@dataclass(slots=True)
class _Learned:
    """What is known of one engine: how many it is given, how many more next, how many it runs when it is full."""

    most: int
    step: int
    runs: int | None = None
    is_full: bool = False
    load: Load | None = None

    def learn(self, load: Load) -> None:
        """Draw the consequence of a look: more, fewer, or as many as before."""
        self.load = load
        self.is_full = load.waiting > 0
        slack = max(1, self.most // SLACK_PARTS)
        running = max(1, min(int(load.running), load.ours))
        if self.is_full:
            self.step = slack
            self.runs = running
        elif self.runs is not None:
            self.runs = max(self.runs, running)
        if load.waiting > slack:
            # Prompts that arrive together wait for one another for a moment; that alone must not take all room away.
            fitting = load.ours - int(load.waiting) + slack
            self.most = max(1, self.most // 2, min(self.most, fitting))
        elif not self.is_full and load.ours >= self.most:
            self.most += self.step
            self.step *= 2
