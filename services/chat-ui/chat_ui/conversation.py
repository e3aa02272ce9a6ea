"""The turns of one conversation and the prompt made of them.

Chainlit's own list also holds error texts and marks; this one holds only what the model should see.
"""

from dataclasses import dataclass, field
from enum import Enum, auto


class TurnState(Enum):
    """How far a turn has come."""

    PENDING = auto()
    ANSWERED = auto()
    STOPPED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Turn:
    """A question and its answer; `id` is that of the person's message on the page."""

    id: str
    question: str
    answer: str = ""
    state: TurnState = TurnState.PENDING

    @property
    def counts(self) -> bool:
        """Whether later prompts hold this turn: it needs an answer, whole or stopped by the person."""
        return bool(self.answer) and self.state in {TurnState.ANSWERED, TurnState.STOPPED}

    @property
    def characters(self) -> int:
        """Length of both texts."""
        return len(self.question) + len(self.answer)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages for the engine; roles alternate. `dropped_turns` older ones found no room."""

    messages: list[dict[str, str]]
    kept_turns: int
    dropped_turns: int


@dataclass(slots=True)
class Conversation:
    """The turns of one page, oldest first; `trimmed` once the person has been told that old ones are left out."""

    turns: list[Turn] = field(default_factory=list)
    trimmed: bool = False

    def begin(self, turn_id: str, question: str) -> Turn:
        """Open a turn; a known id (an edit, a retry) forgets that turn and all after it."""
        for index, turn in enumerate(self.turns):
            if turn.id == turn_id:
                del self.turns[index:]
                break
        turn = Turn(turn_id, question)
        self.turns.append(turn)
        return turn

    def prompt(self, turn: Turn, *, max_turns: int, max_characters: int) -> Prompt:
        """Build the prompt that ends with `turn`: the newest earlier turns that fit, oldest dropped first.

        The question itself is always in it, however long: the engine is the judge of that.
        """
        earlier = [other for other in self.turns[: self.turns.index(turn)] if other.counts]
        room = max_characters - len(turn.question)
        kept: list[Turn] = []
        for other in reversed(earlier[len(earlier) - min(max_turns, len(earlier)) :]):
            room -= other.characters
            if room < 0:
                break
            kept.insert(0, other)
        messages = []
        for other in kept:
            messages.append({"role": "user", "content": other.question})
            messages.append({"role": "assistant", "content": other.answer})
        messages.append({"role": "user", "content": turn.question})
        return Prompt(messages, kept_turns=len(kept), dropped_turns=len(earlier) - len(kept))
