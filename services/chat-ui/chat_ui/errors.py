"""What can go wrong between the page and an answer.

* ChatError
  + GatewayUnreachable   refused, no such host, no connection in time
  + EngineNotReady       503: loading, restarting or no engine
  + EngineBusy           503: queue full
  + RateLimited          429
  + RequestRefused       other 4xx; carries the engine's message
    - ContextTooLong     the prompt does not fit the model
  + UpstreamFailed       other 5xx
  + AnswerTimedOut       504, silence, or the whole answer took too long
  + AnswerCut            a stream that ended before its end mark
"""
# Errors are named after what happened, not after the Python class they derive from.
# ruff: noqa: N818

from typing import ClassVar


class ChatError(Exception):
    """An answer that did not come; `request_id` finds the line in the operator's logs."""

    # Name of the sentence in `texts.Texts` that explains it.
    text: ClassVar[str] = "internal"

    def __init__(self, detail: str = "", *, request_id: str = "", retry_after_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds


class GatewayUnreachable(ChatError):
    """No connection to the gateway."""

    text = "unreachable"


class EngineNotReady(ChatError):
    """The engine is loading or restarting."""

    text = "not_ready"


class EngineBusy(ChatError):
    """Too many requests are waiting already."""

    text = "busy"


class RateLimited(ChatError):
    """This person asked too often."""

    text = "rate_limited"


class RequestRefused(ChatError):
    """The gateway or the engine refused the request; `detail` is its own message."""

    text = "refused"


class ContextTooLong(RequestRefused):
    """The prompt does not fit into the model's context."""

    text = "too_long_for_model"


class UpstreamFailed(ChatError):
    """The gateway or the engine failed before the first word."""

    text = "upstream_failed"


class AnswerTimedOut(ChatError):
    """Nothing came for too long, or the answer took too long as a whole."""

    text = "timed_out"


class AnswerCut(ChatError):
    """The stream ended before its end mark."""

    text = "cut"
