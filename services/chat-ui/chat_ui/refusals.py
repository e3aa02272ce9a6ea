"""Which error of the page's own an answer of the gateway's is, before the first word and after it."""

import json
from typing import Any

import httpx

from chat_ui.errors import (
    AnswerCut,
    AnswerTimedOut,
    ChatError,
    ContextTooLong,
    EngineBusy,
    EngineNotReady,
    RateLimited,
    RequestRefused,
    UpstreamFailed,
)

# How vLLM (`param`) and OpenAI (`code`) name a prompt that does not fit.
TOO_LONG_PARAMS = frozenset({"input_tokens", "input_text", "max_tokens", "max_completion_tokens"})
TOO_LONG_CODE = "context_length_exceeded"
# The gateway's codes that a stream may end with although not a word of it came (docs/behaviour.md).
CODES: dict[str, type[ChatError]] = {
    "not_ready": EngineNotReady,
    "shutting_down": EngineNotReady,
    "overloaded": EngineBusy,
    "rate_limit_exceeded": RateLimited,
    "upstream_timeout": AnswerTimedOut,
    TOO_LONG_CODE: ContextTooLong,
}
FIRST_SERVER_ERROR = 500


def id_of(response: httpx.Response) -> str:
    """Return the id by which the gateway knows a request."""
    sent = response.request.headers.get("x-request-id", "")
    return str(response.headers.get("x-request-id", sent))


def refusal_of(response: httpx.Response, content: bytes) -> ChatError:
    """Return the error that fits the status of an answer refused before its first word."""
    try:
        message, param, code = _fields_of(json.loads(content))
    except ValueError:
        message, param, code = "", "", ""
    kind: type[ChatError]
    match response.status_code:
        case 429:
            kind = RateLimited
        case 503:
            kind = EngineBusy if CODES.get(code) is EngineBusy else EngineNotReady
        case 504:
            kind = AnswerTimedOut
        case 400 if code == TOO_LONG_CODE or param in TOO_LONG_PARAMS:
            kind = ContextTooLong
        case status if status < FIRST_SERVER_ERROR:
            kind = RequestRefused
        case _:
            kind = UpstreamFailed
    seconds = response.headers.get("retry-after", "")
    return kind(
        message or response.reason_phrase,
        request_id=id_of(response),
        retry_after_seconds=int(seconds) if seconds.isdecimal() else None,
    )


def failure_of(event: Any, *, request_id: str, began: bool) -> ChatError:
    """Return the error that an error event stands for; only an answer that `began` can have been cut."""
    message, param, code = _fields_of(event)
    if began:
        return AnswerCut(message, request_id=request_id)
    if param in TOO_LONG_PARAMS:
        return ContextTooLong(message, request_id=request_id)
    # The engine writes the status that it would have answered with into its code.
    refused = code.isdecimal() and int(code) < FIRST_SERVER_ERROR
    kind = RequestRefused if refused else CODES.get(code, UpstreamFailed)
    return kind(message, request_id=request_id)


def _fields_of(body: Any) -> tuple[str, str, str]:
    """Return message, param and code of an error body, empty where they are missing."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return str(error or ""), "", ""
    return str(error.get("message") or ""), str(error.get("param") or ""), str(error.get("code") or "")
