"""What a sound vLLM says, in its own bytes: the same short text, streamed and whole."""

import json
from typing import Any

MODEL = "ernie-demo"
TEXT = ("你好", ", ", "world ", "🔥")
DONE = b"data: [DONE]\n\n"
_CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}


def event(content: str | None = None, **choice: Any) -> bytes:
    """Return a chat completion chunk as vLLM writes it."""
    delta = {} if content is None else {"content": content}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} | choice]
    return b"data: " + _compact(_CHUNK | {"choices": choices}) + b"\n\n"


def usage_event(prompt: int, completion: int) -> bytes:
    """Return the chunk that vLLM sends for `include_usage`."""
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return b"data: " + _compact(_CHUNK | {"choices": [], "usage": usage}) + b"\n\n"


def completion(text: str = "".join(TEXT)) -> bytes:
    """Return an answer that is not streamed."""
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5},
        },
        ensure_ascii=False,
    ).encode()


def _compact(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


EVENTS = [*(event(text) for text in TEXT), event(finish_reason="stop")]
STREAM = b"".join([*EVENTS, DONE])
