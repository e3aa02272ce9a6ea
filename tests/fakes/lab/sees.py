"""What a client sees of an answer, in few words, and what no answer of the gateway may ever look like."""

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.fakes.events import TEXT
from tests.fakes.lab.client import Answer

WHOLE_TEXT = "".join(TEXT)
ERROR_KEYS = {"message", "type", "param", "code"}
UNAVAILABLE = 503
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|fault-engine|localhost|Traceback")


@dataclass(frozen=True, slots=True)
class Sees:
    """An answer in few words: its status, the code of its error if there is one, and whether a stream was [DONE].

    An error's code stands in the body, or after status 200 in the event that ends the stream.
    """

    status: int = 200
    code: str | None = None
    done: bool | None = None

    def __str__(self) -> str:
        if self.status != 200:
            return f"{self.status} {self.code}" if self.code else str(self.status)
        if self.done is None:
            return "200 whole"
        if self.code is None:
            return "200 stream to [DONE]" if self.done else "200 stream without end or error"
        return f"200 stream, error event {self.code}" + (" and [DONE]" if self.done else "")


WHOLE = Sees()
DONE = Sees(done=True)


def refused(status: int, code: str) -> Sees:
    """Return an error with an honest status."""
    return Sees(status, code)


def broken(code: str) -> Sees:
    """Return a stream that ends with one error event."""
    return Sees(200, code, done=False)


def seen(answer: Answer) -> Sees:
    """Return an answer in few words."""
    if answer.status != 200:
        return Sees(answer.status, _code(answer.body))
    if not _is_stream(answer):
        return WHOLE
    data = events_of(answer.body)
    errors = [_code(event) for event in data if _code(event)]
    return Sees(200, errors[-1] if errors else None, done=b"[DONE]" in data)


def blemishes(answer: Answer) -> list[str]:
    """Return what is wrong with an answer, whatever it should have been."""
    found = []
    if not answer.complete:
        found.append("ended before it was complete")
    framing = [name for name, _ in answer.headers if name in {"content-length", "transfer-encoding"}]
    if answer.complete and len(framing) != 1:
        found.append(f"has {len(framing)} framing headers")
    if answer.complete and not answer.header("x-request-id"):
        found.append("has no x-request-id")
    if answer.status == UNAVAILABLE and not (answer.header("retry-after") or "").isdigit():
        found.append("503 without Retry-After")
    if answer.status == 200:
        found += _blemishes_of_stream(answer) if _is_stream(answer) else _blemishes_of_whole(answer)
    elif answer.complete:
        found += _blemishes_of_error(answer.body)
    return found


def events_of(stream: bytes) -> list[bytes]:
    """Return the data of each event, as the specification says, comments left out."""
    found, lines = [], []
    for line in re.split(rb"\r\n|\n|\r", stream):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            found.append(b"\n".join(lines))
            lines = []
    return found


def text_of(stream: bytes) -> str:
    """Return the text that a stream's events add up to."""
    choices = [choice for data in events_of(stream) for choice in _parsed(data).get("choices") or []]
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)


def _is_stream(answer: Answer) -> bool:
    return (answer.header("content-type") or "").startswith("text/event-stream")


def _blemishes_of_stream(answer: Answer) -> list[str]:
    data, text = events_of(answer.body), text_of(answer.body)
    errors = [event for event in data if _code(event)]
    done = data.count(b"[DONE]")
    found = []
    if len(errors) + done != 1:
        found.append(f"ends {len(errors)} times in an error and {done} times in [DONE]")
    elif data[-1] not in {b"[DONE]", *errors}:
        found.append("goes on after its end")
    if not WHOLE_TEXT.startswith(text) or (done and text != WHOLE_TEXT):
        found.append(f"holds the text {text!r}")
    for error in errors:
        found += _blemishes_of_error(error)
    return found


def _blemishes_of_whole(answer: Answer) -> list[str]:
    try:
        text = answer.json["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return ["is no chat completion"]
    return [] if text == WHOLE_TEXT else [f"holds the text {text!r}"]


def _blemishes_of_error(body: bytes) -> list[str]:
    error = _parsed(body).get("error")
    if not isinstance(error, dict) or set(error) != ERROR_KEYS or not error["message"]:
        return ["has no error of the OpenAI shape"]
    return ["names an inner address"] if _ADDRESS.search(str(error["message"])) else []


def _code(body: bytes) -> str | None:
    error = _parsed(body).get("error")
    return str(error.get("code")) if isinstance(error, dict) else None


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
