"""Conversations and messages in Chainlit's words, and in the store's."""

from datetime import UTC, datetime
from typing import Literal

from chainlit.step import StepDict
from chainlit.types import FeedbackDict, ThreadDict

from chat_ui.history.threads import Step, Thread
from chat_ui.history.turns import said

TYPES: dict[str, Literal["user_message", "run"]] = {"user_message": "user_message", "run": "run"}


def to_step(step: StepDict) -> Step:
    """Return a message of Chainlit's as the store keeps it."""
    # What a run holds beside its answer is of no use to anybody.
    output = "" if step["type"] == "run" else step.get("output") or ""
    return Step(
        id=step["id"],
        thread_id=step["threadId"],
        created_at=step.get("createdAt") or datetime.now(UTC).replace(tzinfo=None).isoformat() + "Z",
        type=step["type"],
        name=step.get("name") or "",
        output=output,
        text=said(step) if output else "",
        is_error=bool(step.get("isError")),
        details={key: step[key] for key in ("metadata", "modes", "language", "parentId") if step.get(key)},
    )


def _step_dict(step: Step) -> StepDict:
    feedback: FeedbackDict | None = None
    if step.thumb is not None:
        feedback = {"id": step.id, "forId": step.id, "value": 1 if step.thumb else 0, "comment": step.comment}
    return {
        "id": step.id,
        "threadId": step.thread_id,
        "parentId": step.details.get("parentId"),
        "createdAt": step.created_at,
        "start": step.created_at,
        "end": step.created_at,
        "type": TYPES.get(step.type, "assistant_message"),
        "name": step.name,
        "input": "",
        "output": step.output,
        "streaming": False,
        "isError": step.is_error,
        "waitForAnswer": False,
        "metadata": step.details.get("metadata") or {},
        "feedback": feedback,
        "modes": step.details.get("modes"),
        "language": step.details.get("language"),
    }


def to_thread_dict(thread: Thread) -> ThreadDict:
    """Return a conversation as Chainlit and its page take it, grouped in the list by its last use."""
    return {
        "id": thread.id,
        "createdAt": datetime.fromtimestamp(thread.used_ms / 1000, UTC).isoformat(),
        "name": thread.name,
        "userId": thread.owner,
        "userIdentifier": thread.owner,
        "tags": None,
        "metadata": thread.settings,
        "steps": [_step_dict(step) for step in thread.steps],
        "elements": [],
    }
