"""The turns of one conversation and the prompt made of them.

Chainlit's own list also holds error texts and marks; this one holds only what the model should see.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

Messages = list[dict[str, str]]


class TurnState(Enum):
    """How far a turn has come."""

    PENDING = auto()
    ANSWERED = auto()
    STOPPED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Turn:
    """A question and its answer; `id` is that of the person's message on the page.

    An answer that is continued has `begun` already; `instruction` asks for the rest of it.
    """

    id: str
    question: str
    answer: str = ""
    state: TurnState = TurnState.PENDING
    begun: str = ""
    instruction: str = ""

    @property
    def counts(self) -> bool:
        """Whether later prompts hold this turn: it needs an answer, whole or stopped by the person."""
        return bool(self.answer) and self.state in {TurnState.ANSWERED, TurnState.STOPPED}


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages for the engine; roles alternate. `dropped_turns` older ones found no room."""

    messages: Messages
    kept_turns: int
    dropped_turns: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many tokens a model's engine has counted in messages."""

    model: str
    messages: Messages
    tokens: int


@dataclass(slots=True)
class Conversation:
    """The turns of one page, oldest first; `trimmed` once the person has been told that old ones are left out.

    `counted` is the engine's latest count of a prompt of this conversation.
    """

    turns: list[Turn] = field(default_factory=list)
    trimmed: bool = False
    counted: Count | None = None

    def begin(self, turn_id: str, question: str) -> Turn:
        """Open a turn; a known id (an edit, a retry) forgets that turn and all after it."""
        for index, turn in enumerate(self.turns):
            if turn.id == turn_id:
                del self.turns[index:]
                break
        turn = Turn(turn_id, question)
        self.turns.append(turn)
        return turn

    def find(self, turn_id: str) -> Turn | None:
        """Return a turn by its id."""
        return next((turn for turn in self.turns if turn.id == turn_id), None)

    def prompt(self, turn: Turn, *, max_turns: int, system_prompt: str = "") -> Prompt:
        """Build the prompt that ends with `turn`, after the newest earlier turns, `max_turns` at most."""
        earlier = [other for other in self.turns[: self.turns.index(turn)] if other.counts]
        kept = earlier[len(earlier) - min(max_turns, len(earlier)) :]
        messages = [_message("system", system_prompt)] if system_prompt else []
        for other in kept:
            messages += [_message("user", other.question), _message("assistant", other.answer)]
        messages.append(_message("user", turn.question))
        if turn.begun:
            messages += [_message("assistant", turn.begun), _message("user", turn.instruction)]
        return Prompt(messages, kept_turns=len(kept), dropped_turns=len(earlier) - len(kept))


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
