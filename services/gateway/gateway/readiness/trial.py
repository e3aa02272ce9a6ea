"""One trial generation: streamed, timed, and its text looked at for the signs of a broken engine."""

import asyncio
import re
import secrets
import time
from dataclasses import dataclass

import orjson

from gateway.errors import GatewayError
from gateway.sse import EventSplitter, data_of, ends_stream, split_events
from gateway.upstreams import Answer, Engine, EngineClient

CHAT_PATH = "/v1/chat/completions"
# Any chat model has something to say to it, however small.
PROMPT = "Hello"
_OK = 200
_NO_ROOM = frozenset({429, 503})
_SPECIAL_TOKEN = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?s>|<unk>|<pad>|<mask:\d+>")
# A unit of up to eight characters, ten times in a row to the end of the text.
_ENDLESS = re.compile(r"(.{1,8}?)\1{9,}$", re.DOTALL)
# All that the pattern needs; on a long text its tries would take seconds.
_ENDLESS_CHARACTERS = 80
_NO_COMPLETION = "a generation held an event that is no chat completion"
_REPLACEMENT = "\ufffd"


class TrialFault(Exception):  # noqa: N818  (a finding, not an error of ours)
    """The engine answered, but not as a sound one does; the message names the fault."""


class TrialTurnedAway(TrialFault):
    """The engine has no room for it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial generation brought."""

    text: str
    finish_reason: str | None
    ttft_seconds: float


async def run_trial(
    client: EngineClient, engine: Engine, *, max_tokens: int, timeout_seconds: float, repeat_prompt: int = 1
) -> Trial:
    """Generate once; raises GatewayError or TimeoutError if nothing comes, TrialFault if it is refused."""
    body = orjson.dumps(
        {
            "model": engine.models[0]["id"],
            "messages": [{"role": "user", "content": " ".join([PROMPT] * repeat_prompt)}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
        }
    )
    called_at = time.perf_counter()
    async with asyncio.timeout(timeout_seconds):
        with await client.post(engine, CHAT_PATH, body, {"X-Request-Id": f"trial-{secrets.token_hex(8)}"}) as answer:
            if answer.status != _OK:
                kind = TrialTurnedAway if answer.status in _NO_ROOM else TrialFault
                raise kind(f"a generation was answered with status {answer.status}")
            return await _read(answer, called_at)


async def _read(answer: Answer, called_at: float) -> Trial:
    splitter, text, finish_reason, ttft = EventSplitter(), [], None, 0.0
    while chunk := await answer.read():
        events = splitter.feed(chunk)
        for event in split_events(events):
            ttft = ttft or time.perf_counter() - called_at
            piece, reason = _choice_in(data_of(event))
            text.append(piece)
            finish_reason = reason or finish_reason
        if ends_stream(events):
            await answer.finish(1.0)
            break
    return Trial("".join(text), finish_reason, ttft)


def _choice_in(data: bytes) -> tuple[str, str | None]:
    """Return the text and the finish reason in an event's data."""
    if not data or data == b"[DONE]":
        return "", None
    try:
        event = orjson.loads(data)
        if "error" in event:
            raise TrialFault("a generation ended in an error of the engine's own")
        choices = event["choices"]
        if not choices:
            return "", None
        text, reason = choices[0]["delta"].get("content") or "", choices[0].get("finish_reason")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        raise TrialFault(_NO_COMPLETION) from None
    if not isinstance(text, str) or not isinstance(reason, str | None):
        raise TrialFault(_NO_COMPLETION)
    return text, reason


def check_text(trial: Trial) -> None:
    """Raise TrialFault, which names the fault, unless the text is one that a sound engine could have written."""
    text = trial.text
    if trial.finish_reason is None:
        raise TrialFault("a generation ended without a finish reason")
    if trial.finish_reason == "length":
        # The last character may be cut in two by the token limit; that is no fault.
        text = text.rstrip(_REPLACEMENT)
    if not text.strip():
        raise TrialFault("a generation's text was empty")
    if _REPLACEMENT in text:
        raise TrialFault("a generation's text held U+FFFD: broken characters")
    if _SPECIAL_TOKEN.search(text):
        raise TrialFault("a generation's text held special tokens")
    if _ENDLESS.search(text[-_ENDLESS_CHARACTERS:]):
        raise TrialFault("a generation's text repeated itself without end")


async def is_alive(client: EngineClient, engine: Engine, timeout_seconds: float) -> bool:
    """Tell whether one token comes back in time; the text does not matter."""
    try:
        trial = await run_trial(client, engine, max_tokens=1, timeout_seconds=timeout_seconds)
    except (GatewayError, TimeoutError, TrialFault):
        return False
    return trial.ttft_seconds > 0
