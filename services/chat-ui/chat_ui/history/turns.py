"""How an answer is marked in the store, and how the turns of a conversation come back from it."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from chat_ui.conversation import Turn, TurnState
from chat_ui.figures import Figures

if TYPE_CHECKING:
    # Not at run time: Chainlit makes folders where it is imported.
    from chainlit.step import StepDict

# In a message's metadata: which question it answers, how far it came, what the model wrote, and what that took.
MARK = "answer"


def mark(turn: Turn, figures: Figures | None = None) -> dict[str, Any]:
    """Return the metadata of an answer's message. Errors and notes carry none, and come back as no turns."""
    taken = figures.record() if figures else None
    return {MARK: {"turn": turn.id, "state": turn.state.name, "raw": turn.answer, "figures": taken}}


def kept_figures(steps: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, Figures]]:
    """Yield the message, the turn and the figures of each answer that has some; earlier versions kept none."""
    for step in steps:
        marked = (step.get("metadata") or {}).get(MARK) or {}
        if record := marked.get("figures"):
            yield step["id"], marked["turn"], Figures.kept(record)


def said(step: Mapping[str, Any]) -> str:
    """Return what was said in a message of Chainlit's: of an answer the model's own text, without notes and escapes."""
    marked = (step.get("metadata") or {}).get(MARK)
    return str(marked["raw"]) if marked else str(step.get("output") or "")


def restore(steps: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """Return the turns of a conversation, oldest first; a question without an answer is one that failed."""
    turns: dict[str, Turn] = {}
    for step in steps:
        marked = (step.get("metadata") or {}).get(MARK)
        if step.get("type") == "user_message":
            turns[step["id"]] = Turn(step["id"], str(step.get("output") or ""), state=TurnState.FAILED)
        elif marked and marked["turn"] in turns:
            turn = turns[marked["turn"]]
            turn.answer, turn.state = str(marked["raw"]), TurnState[marked["state"]]
    return list(turns.values())


def unanswered(question: "StepDict", text: str) -> "StepDict":
    """Return a message for the page alone, below a question whose answer never came: the process ended before it."""
    return {
        **question,
        "id": str(uuid.uuid4()),
        "type": "assistant_message",
        "name": "",
        "output": text,
        "isError": True,
        "metadata": {},
        "modes": None,
    }
