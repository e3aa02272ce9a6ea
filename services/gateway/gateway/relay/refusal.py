"""What the engine's error statuses become: its 4xx as they are, everything else in our words."""

import asyncio

import orjson

from gateway.errors import (
    RETRY_AFTER_SECONDS,
    GatewayError,
    Overloaded,
    RefusedByEngine,
    UpstreamFailed,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    error_body,
)
from gateway.sse import data_of, split_events
from gateway.upstreams import Answer

MAX_REFUSAL_BYTES = 65_536
REFUSAL_SECONDS = 5.0
_SHOWN_CHARACTERS = 2000

_BAD_REQUEST = 400
_SERVER_FAULT = 500
_UNAVAILABLE = 503
_TIMED_OUT = 504


async def refusal_of(answer: Answer) -> GatewayError:
    """Return the error that an answer of another status than 200 means."""
    if not _BAD_REQUEST <= answer.status < _SERVER_FAULT:
        return _server_fault(answer.status, answer.retry_after)
    try:
        async with asyncio.timeout(REFUSAL_SECONDS):
            body = await answer.read_whole(MAX_REFUSAL_BYTES)
    except (GatewayError, TimeoutError):
        # The status is known and says enough; only its explanation is lost.
        body = b""
    return RefusedByEngine(answer.status, _checked(body, answer.status), retry_after=answer.retry_after)


def cut_at_error(events: bytes) -> tuple[bytes, GatewayError | None]:
    """Return the whole events that come before an error of the engine's own, and what it means; None if there is none.

    vLLM sends such an event after status 200, and its own `[DONE]` behind it.
    """
    before = b""
    for event in split_events(events):
        error = _error_object(data_of(event))
        if error is not None:
            return before, _refusal_in_stream(error)
        before += event
    return events, None


def _refusal_in_stream(error: dict[str, object]) -> GatewayError:
    status = error.get("code")
    if not isinstance(status, int):
        return _server_fault(_SERVER_FAULT, None)
    if _BAD_REQUEST <= status < _SERVER_FAULT:
        return RefusedByEngine(status, orjson.dumps({"error": error}))
    return _server_fault(status, None)


def _server_fault(status: int, retry_after: int | None) -> GatewayError:
    if status == _UNAVAILABLE:
        return Overloaded(
            "The engine has no room for the request. Try again in a few seconds.",
            retry_after=RETRY_AFTER_SECONDS if retry_after is None else retry_after,
        )
    if status == _TIMED_OUT:
        return UpstreamTimeout("The engine did not answer in time. Try again, or ask for less.")
    if status >= _SERVER_FAULT:
        return UpstreamFailed(f"The engine failed on this request (its status: {status}). Try again.")
    return UpstreamInvalidResponse(f"The engine answered with an unexpected status ({status}). Try again.")


def _checked(body: bytes, status: int) -> bytes:
    """Return the body if it has the error shape, else one that has, with the engine's words if it gave any."""
    if _error_object(body) is not None:
        return body
    message = _words_in(body) or f"The engine refused the request with status {status}."
    return orjson.dumps(error_body(message, type_=RefusedByEngine.type, param=None, code=RefusedByEngine.code))


def _error_object(body: bytes) -> dict[str, object] | None:
    parsed = _parsed(body)
    error = parsed.get("error")
    return error if isinstance(error, dict) else None


def _words_in(body: bytes) -> str | None:
    parsed = _parsed(body)
    words = parsed.get("message") or parsed.get("detail") or parsed.get("error")
    return words[:_SHOWN_CHARACTERS] if isinstance(words, str) else None


def _parsed(body: bytes) -> dict[str, object]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
