"""What a request may say: an allow-list of fields, each with its type and bounds.

vLLM takes many more fields than OpenAI's API has; several of them have brought servers down or leaked from
them. Whatever is not named here is refused with its name. A body in which nothing has to change reaches the
engine as the bytes that came.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.conversation import conversation_of
from gateway.errors import InvalidRequest
from gateway.schemas import Generation

Check = Callable[[Any, str], None]

# Counts and lengths far above honest use and far below what has blocked a server.
MAX_MESSAGES = 1024
# 16 parts in each of 1,024 messages are checked in 25 ms.
MAX_PARTS = 16
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_NAME_CHARACTERS = 256
MAX_TOP_LOGPROBS = 20
# What vLLM itself takes for a seed.
SEED_RANGE = (-(2**63), 2**63 - 1)
TOP_K_RANGE = (-1, 2**31 - 1)
# The chat template drops every other role in silence.
ROLES = ("system", "user", "assistant")
# Above this a body of nothing but brackets makes the garbage collector, not the parser, the slow part:
# 2 MiB of "[]," take 160 ms with it and 40 ms without (measured).
LARGE_BODY_BYTES = 65_536
# 2 MiB of "[]," or "{}," take 70 ms to make and forget; the largest body with accepted counts has a third of this.
MAX_CONTAINERS = 65_536
MAX_STRINGS = 131_072
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Clamps:
    """The bounds that an operator sets."""

    max_tokens: int
    max_choices: int


class Policy:
    """Checks the bodies of the two generation routes, and of the one that counts tokens."""

    def __init__(self, clamps: Clamps) -> None:
        shared = _shared_fields(clamps)
        self._fields: Mapping[str, dict[str, Check]] = {
            "/v1/chat/completions": shared | _chat_fields(clamps),
            "/v1/completions": shared | _completion_fields(clamps),
            "/tokenize": {"model": shared["model"], "messages": _messages},
        }
        self._required = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/tokenize": "messages"}

    def check(self, path: str, body: bytes) -> Generation:
        """Return what the engine is to get; raise InvalidRequest that names the field at fault."""
        fields = parse_object(body)
        checks = self._fields[path]
        for name, value in fields.items():
            if value is None:
                continue
            check = checks.get(name)
            if check is None:
                shown = name[:_SHOWN_CHARACTERS]
                raise InvalidRequest(f"The field '{shown}' is not accepted here. Leave it out.", param=shown)
            check(value, name)
        required = self._required[path]
        if fields.get(required) is None:
            raise InvalidRequest(f"The field '{required}' is missing.", param=required)
        stream = fields.get("stream") is True
        options = fields.get("stream_options")
        hide_usage = stream and not (options and options.get("include_usage"))
        sent = _ask_for_usage(body, fields) if hide_usage else body
        most = fields.get("max_completion_tokens") or fields.get("max_tokens")
        return Generation(
            path, sent, stream, hide_usage, most, _choices(fields), fields.get("model") or "", conversation_of(fields)
        )


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; raise InvalidRequest for anything else.

    orjson refuses NaN, infinities, lone surrogates and more than 1,024 levels; the fields that are let
    through have at most five.
    """
    if len(body) > LARGE_BODY_BYTES:
        _check_structure(body)
    collecting = len(body) > LARGE_BODY_BYTES and gc.isenabled()
    if collecting:
        gc.disable()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error.msg} (byte {error.pos}).") from None
    finally:
        if collecting:
            gc.enable()
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return value


def _check_structure(body: bytes) -> None:
    """Refuse a body of more objects, lists or strings than any request needs, before they are made."""
    if body.count(b"[") + body.count(b"{") <= MAX_CONTAINERS and body.count(b'"') <= 2 * MAX_STRINGS:
        return
    # They may all stand inside a text: code and JSON are full of them.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * MAX_STRINGS:
        raise InvalidRequest(f"The body holds more than {MAX_STRINGS} strings.")
    outside = b"".join(unescaped.split(b'"')[::2])
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise InvalidRequest(f"The body holds more than {MAX_CONTAINERS} objects and lists.")


def _choices(fields: dict[str, Any]) -> int:
    """Return how many answers are made: `best_of` may be more than `n`, and each prompt has its own."""
    prompts = fields.get("prompt")
    each = max(fields.get("n") or 1, fields.get("best_of") or 1)
    return each * (len(prompts) if isinstance(prompts, list) else 1)


def _ask_for_usage(body: bytes, fields: dict[str, Any]) -> bytes:
    """Return the body with `include_usage` set, spliced in so that every other byte stays."""
    if "stream_options" in fields:
        return orjson.dumps(fields | {"stream_options": {"include_usage": True}})
    brace = body.index(b"{") + 1
    return body[:brace] + b'"stream_options":{"include_usage":true},' + body[brace:]


def _shared_fields(clamps: Clamps) -> dict[str, Check]:
    return {
        "model": _text(MAX_NAME_CHARACTERS),
        "stream": _boolean,
        "stream_options": _stream_options,
        "max_tokens": _integer(1, clamps.max_tokens),
        "n": _integer(1, clamps.max_choices),
        "temperature": _number(0, 2),
        "top_p": _number(0, 1, above=True),
        "top_k": _integer(*TOP_K_RANGE),
        "min_p": _number(0, 1),
        "presence_penalty": _number(-2, 2),
        "frequency_penalty": _number(-2, 2),
        "repetition_penalty": _number(0, 2, above=True),
        "seed": _integer(*SEED_RANGE),
        "stop": _texts(MAX_STOPS, MAX_STOP_CHARACTERS),
        "ignore_eos": _boolean,
        "user": _text(MAX_NAME_CHARACTERS),
    }


def _chat_fields(clamps: Clamps) -> dict[str, Check]:
    return {
        "messages": _messages,
        "max_completion_tokens": _integer(1, clamps.max_tokens),
        "logprobs": _boolean,
        "top_logprobs": _integer(0, MAX_TOP_LOGPROBS),
        "response_format": _response_format,
    }


def _completion_fields(clamps: Clamps) -> dict[str, Check]:
    return {
        "prompt": _texts(clamps.max_choices, None),
        "best_of": _integer(1, clamps.max_choices),
        "logprobs": _integer(0, MAX_TOP_LOGPROBS),
    }


def _boolean(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest(f"'{name}' must be true or false.", param=name)


def _integer(least: int, most: int) -> Check:
    def check(value: Any, name: str) -> None:
        if type(value) is not int or not least <= value <= most:
            raise InvalidRequest(f"'{name}' must be a whole number from {least} to {most}.", param=name)

    return check


def _number(least: float, most: float, *, above: bool = False) -> Check:
    def check(value: Any, name: str) -> None:
        numeric = type(value) is int or type(value) is float
        if not numeric or not least <= value <= most or (above and value == least):
            bounds = f"above {least} and at most {most}" if above else f"from {least} to {most}"
            raise InvalidRequest(f"'{name}' must be a number {bounds}.", param=name)

    return check


def _text(most: int) -> Check:
    def check(value: Any, name: str) -> None:
        if not isinstance(value, str) or len(value) > most:
            raise InvalidRequest(f"'{name}' must be a text of at most {most} characters.", param=name)

    return check


def _texts(most: int, longest: int | None) -> Check:
    """Return the check of one text or a list of up to `most`, each of up to `longest` characters."""

    def check(value: Any, name: str) -> None:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not 1 <= len(texts) <= most:
            raise InvalidRequest(f"'{name}' must be a text or a list of 1 to {most} texts.", param=name)
        for text in texts:
            if not isinstance(text, str):
                raise InvalidRequest(f"'{name}' must hold texts only.", param=name)
            if longest is not None and not 1 <= len(text) <= longest:
                raise InvalidRequest(f"Each text in '{name}' must have 1 to {longest} characters.", param=name)

    return check


def _stream_options(value: Any, name: str) -> None:
    _object(value, name, {"include_usage": _boolean})


def _response_format(value: Any, name: str) -> None:
    _object(value, name, {"type": _one_of(("text", "json_object"))})


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(value: Any, name: str) -> None:
        if value not in choices:
            raise InvalidRequest(f"'{name}' must be one of: {', '.join(choices)}.", param=name)

    return check


def _messages(value: Any, name: str) -> None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MESSAGES:
        raise InvalidRequest(f"'{name}' must be a list of 1 to {MAX_MESSAGES} messages.", param=name)
    for index, message in enumerate(value):
        _message(message, f"{name}[{index}]")


def _message(message: Any, name: str) -> None:
    _object(message, name, _MESSAGE_FIELDS, ignore_empty=True)
    if message.get("role") is None:
        raise InvalidRequest(f"'{name}.role' is missing.", param=f"{name}.role")
    if message.get("content") is None and message["role"] != "assistant":
        raise InvalidRequest(f"'{name}.content' is missing.", param=f"{name}.content")


def _content(value: Any, name: str) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PARTS:
        raise InvalidRequest(f"'{name}' must be a text or a list of 1 to {MAX_PARTS} text parts.", param=name)
    for index, part in enumerate(value):
        _object(part, f"{name}[{index}]", _PART_FIELDS)
        if part.get("text") is None:
            raise InvalidRequest(f"'{name}[{index}].text' is missing.", param=f"{name}[{index}].text")


def _any_text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(f"'{name}' must be a text.", param=name)


def _object(value: Any, name: str, checks: dict[str, Check], *, ignore_empty: bool = False) -> None:
    """Check an inner object's fields.

    `ignore_empty` lets empty fields of any name pass: clients send an assistant's message back as it came,
    with its empty `tool_calls` and its null `refusal`.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"'{name}' must be an object.", param=name)
    for key, inner in value.items():
        check = checks.get(key)
        if check is None:
            if inner is None or (ignore_empty and inner == []):
                continue
            shown = f"{name}.{key[:_SHOWN_CHARACTERS]}"
            raise InvalidRequest(f"The field '{shown}' is not accepted here. Leave it out.", param=shown)
        if inner is not None:
            check(inner, f"{name}.{key}")


_PART_FIELDS: dict[str, Check] = {"type": _one_of(("text",)), "text": _any_text}
_MESSAGE_FIELDS: dict[str, Check] = {
    "role": _one_of(ROLES),
    "content": _content,
    "name": _text(MAX_NAME_CHARACTERS),
}
