"""Every way a request can fail, as one tree.

* GatewayError
  + ClientError
    - InvalidRequest 400 · Unauthorized 401 · NotFound 404 · MethodNotAllowed 405
    - RequestTimeout 408 · RequestTooLarge 413 · UnsupportedEncoding 415 · RateLimited 429 · HeadTooLarge 431
    - RefusedByEngine: the engine's own 4xx, status and body kept
  + ServerError
    - InternalError 500
    - UpstreamBroken 502 · UpstreamFailed 502 · UpstreamInvalidResponse 502 · UpstreamTruncated 502
    - NotReady 503 · ShuttingDown 503 · UpstreamUnavailable 503 · Overloaded 503
    - UpstreamTimeout 504
* ClientDisconnected: nobody is left to answer

Messages say what happened and what to do. They never name an inner address.
"""
# Errors are named after the answer they become, not after the Python class they derive from.
# ruff: noqa: N818

from enum import StrEnum
from typing import Any, ClassVar

import orjson

# What clients' retries should wait: an engine that restarts is away for longer than that anyway.
RETRY_AFTER_SECONDS = 5


class Outcome(StrEnum):
    """How a request ended: the closed set behind `gateway_requests_total{outcome}`."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    NOT_READY = "not_ready"
    DISCONNECTED = "disconnected"
    UPSTREAM_ERROR = "upstream_error"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    INTERNAL_ERROR = "internal_error"


class GatewayError(Exception):
    """An answer in the OpenAI error shape; `status` counts only before the first byte."""

    status: int = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    outcome: ClassVar[Outcome] = Outcome.INTERNAL_ERROR
    # Once the engine's first event has been passed on.
    outcome_mid_stream: ClassVar[Outcome] = Outcome.TRUNCATED

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(retry_after)

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body."""
        return error_body(self.message, type_=self.type, param=self.param, code=self.code)

    def encode(self) -> bytes:
        """Return the answer's body as JSON bytes."""
        return orjson.dumps(self.body)


class ClientError(GatewayError):
    """The request is at fault; sending it again unchanged will fail again."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"
    outcome = Outcome.CLIENT_ERROR


class InvalidRequest(ClientError):
    """A field, or the body as a whole, is not acceptable."""


class Unauthorized(ClientError):
    """Keys are needed here, and this is none."""

    status = 401
    code = "invalid_api_key"

    def __init__(self, *, is_missing: bool) -> None:
        super().__init__(
            "An API key is needed. Send it as 'Authorization: Bearer KEY'."
            if is_missing
            else "The API key is not known.",
            headers={"www-authenticate": "Bearer"},
        )


class NotFound(ClientError):
    """No such path."""

    status = 404
    code = "not_found"


class MethodNotAllowed(ClientError):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class RequestTimeout(ClientError):
    """The client took too long to send its body."""

    status = 408
    code = "request_timeout"


class RequestTooLarge(ClientError):
    """The body is larger than this gateway reads."""

    status = 413
    code = "request_too_large"


class UnsupportedEncoding(ClientError):
    """The body came compressed."""

    status = 415
    code = "unsupported_encoding"


class RateLimited(ClientError):
    """The client has had its share for now."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    outcome = Outcome.RATE_LIMITED


class HeadTooLarge(ClientError):
    """The request's line and headers are larger than this gateway reads."""

    status = 431
    code = "head_too_large"


class RefusedByEngine(ClientError):
    """The engine's own refusal: its status and body are kept."""

    code = "refused_by_engine"

    def __init__(self, status: int, body: bytes, *, retry_after: int | None = None) -> None:
        super().__init__("The engine refused the request.", retry_after=retry_after)
        self.status = status
        self._body = body

    def encode(self) -> bytes:
        """Return the engine's body as it came."""
        return self._body


class ServerError(GatewayError):
    """The request may be fine; the service is not."""


class InternalError(ServerError):
    """A fault in the gateway itself."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The gateway failed on this request. Report it with its id {request_id}.")


class UpstreamFault(ServerError):
    """The engine has answered, and wrongly: its own fault or the request's, and nobody else's."""

    status = 502
    outcome = Outcome.UPSTREAM_ERROR


class UpstreamBroken(UpstreamFault):
    """The engine closed the connection before it had answered."""

    code = "upstream_broken"


class UpstreamFailed(UpstreamFault):
    """The engine itself says that it failed."""

    code = "upstream_failed"
    outcome_mid_stream = Outcome.UPSTREAM_ERROR


class UpstreamInvalidResponse(UpstreamFault):
    """The engine answered, but not with what was asked for."""

    code = "upstream_invalid_response"
    outcome_mid_stream = Outcome.UPSTREAM_ERROR


class UpstreamTruncated(UpstreamFault):
    """The engine's stream ended without saying that it was complete."""

    code = "upstream_truncated"


class NotReady(ServerError):
    """No engine has proved itself yet."""

    status = 503
    code = "not_ready"
    outcome = Outcome.NOT_READY


class ShuttingDown(ServerError):
    """The gateway is stopping."""

    status = 503
    code = "shutting_down"
    outcome = Outcome.NOT_READY

    def __init__(self) -> None:
        super().__init__("The gateway is being restarted. Try again in a few seconds.", retry_after=RETRY_AFTER_SECONDS)


class UpstreamUnavailable(ServerError):
    """No connection to the engine: nothing was sent, so the request may go to another or wait. No client sees it."""

    status = 503
    code = "upstream_unavailable"
    outcome = Outcome.UPSTREAM_ERROR


class Overloaded(ServerError):
    """The engine has no room for the request now."""

    status = 503
    code = "overloaded"
    outcome = Outcome.OVERLOADED


class UpstreamTimeout(ServerError):
    """The engine was silent for longer than it may be."""

    status = 504
    code = "upstream_timeout"
    outcome = Outcome.TIMEOUT
    outcome_mid_stream = Outcome.TIMEOUT

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        # The OpenAI SDKs ask again on every 5xx, up to twice: what took too long would be generated three times.
        super().__init__(message, retry_after=retry_after, headers={"x-should-retry": "false"})


class ClientDisconnected(Exception):
    """The client left, or stopped taking what was sent; nobody is left to answer."""


def untie(error: BaseException | None) -> None:
    """Let an error that has been dealt with forget where it came from.

    It knows the frames that it has passed, and some of those know it: a knot that holds all that its request had until
    the collector comes, which is seldom.
    """
    while error is not None:
        error.__traceback__ = error.__cause__ = None
        error.__context__, error = None, error.__context__


def error_body(message: str, *, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return the one error shape of the whole stack."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
