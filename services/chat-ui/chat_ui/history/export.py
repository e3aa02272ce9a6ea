"""A conversation written out, as Markdown to read and as JSON to work with: what was said, and no notes of the page."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from chat_ui.history.threads import Step, Thread
from chat_ui.history.turns import MARK


def to_markdown(thread: Thread) -> str:
    """Return the conversation as Markdown, both voices under their names."""
    parts = [f"# {thread.name or thread.id}", f"{_time(thread.created_ms)}"]
    for step in _said(thread):
        who = "🧑" if step.type == "user_message" else f"🤖 {step.name}"
        parts.append(f"## {who}{_remarks(step)}")
        parts.append(step.text)
    return "\n\n".join(parts) + "\n"


def to_json(thread: Thread) -> str:
    """Return the conversation as one JSON object; roles are those of the API."""
    told: dict[str, Any] = {
        "id": thread.id,
        "name": thread.name,
        "created": _time(thread.created_ms),
        "last_used": _time(thread.used_ms),
        "settings": thread.settings.get("chat_settings") or {},
        "messages": [_message(step) for step in _said(thread)],
    }
    return json.dumps(told, ensure_ascii=False, indent=2)


def _said(thread: Thread) -> list[Step]:
    """Return questions and answers; a thumb is kept with the run that an answer came from."""
    runs = {step.id: step for step in thread.steps if step.type == "run"}
    said = []
    for step in thread.steps:
        if step.type == "user_message" or MARK in step.details.get("metadata", {}):
            run = runs.get(step.details.get("parentId", ""), step)
            said.append(replace(step, thumb=run.thumb, comment=run.comment))
    return said


def _message(step: Step) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "user", "content": step.text, "time": step.created_at}
    if step.type != "user_message":
        message |= {"role": "assistant", "complete": _is_complete(step)}
    if step.thumb is not None:
        message |= {"thumb": "up" if step.thumb else "down", "comment": step.comment}
    return message


def _remarks(step: Step) -> str:
    partial = "" if step.type == "user_message" or _is_complete(step) else " ✂️"
    thumb = {None: "", 0: " 👎", 1: " 👍"}[step.thumb]
    return partial + thumb


def _is_complete(step: Step) -> bool:
    return bool(step.details["metadata"][MARK]["state"] == "ANSWERED")


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
