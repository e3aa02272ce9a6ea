"""What looks at one engine have taught: how many it may be given."""

from dataclasses import dataclass
from typing import Self

from gateway.upstreams import Load

# Few enough for the engines on a small machine; one that can do more is given twice as many at each look.
FIRST = 16
# Of what an engine is given, this part may wait in its own queue, so that what ends in a step is followed in the next.
SLACK_PARTS = 32


@dataclass(slots=True)
class Learned:
    """How many an engine is given, how many more next, and how many it runs when it is full, None before it was.

    `ceiling` is how many it was told to run at most, None where nobody says.
    """

    most: int
    step: int
    runs: int | None = None
    ceiling: int | None = None
    is_full: bool = False
    load: Load | None = None

    @classmethod
    def from_nothing(cls, load: Load) -> Self:
        """Begin with few, or with what it has already."""
        return cls(max(FIRST, load.ours), FIRST)

    @classmethod
    def told(cls, sequences: int) -> Self:
        """Begin with what its launcher says; fewer are learned from looks, more never."""
        return cls(sequences, _slack_of(sequences), runs=sequences, ceiling=sequences)

    @property
    def may_do_more(self) -> bool:
        """Whether it may run more than it was found to."""
        return self.ceiling is None or self.most < self.ceiling or self.runs is None or self.runs < self.ceiling

    def learn(self, load: Load) -> None:
        """Draw the consequence of a look: more, fewer, or as many as before."""
        self.load = load
        self.is_full = load.waiting > 0
        slack = _slack_of(self.most)
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
        if self.ceiling is not None:
            self.most = min(self.most, self.ceiling)


def _slack_of(most: int) -> int:
    return max(1, most // SLACK_PARTS)
