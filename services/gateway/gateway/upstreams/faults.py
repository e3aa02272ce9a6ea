"""The one place where the HTTP client's exceptions become the gateway's errors."""

import aiohttp

from gateway.errors import (
    GatewayError,
    UpstreamBroken,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnavailable,
)

# The most specific class in an exception's ancestry wins.
TABLE: dict[type[BaseException], type[GatewayError]] = {
    aiohttp.ClientConnectorError: UpstreamUnavailable,
    aiohttp.ConnectionTimeoutError: UpstreamUnavailable,
    aiohttp.InvalidURL: UpstreamUnavailable,
    aiohttp.NonHttpUrlClientError: UpstreamUnavailable,
    aiohttp.ServerTimeoutError: UpstreamTimeout,
    TimeoutError: UpstreamTimeout,
    aiohttp.ClientConnectionError: UpstreamBroken,
    aiohttp.ClientPayloadError: UpstreamBroken,
    aiohttp.client_exceptions.UploadAbortedError: UpstreamBroken,
    OSError: UpstreamBroken,
    aiohttp.ClientResponseError: UpstreamInvalidResponse,
    aiohttp.RedirectClientError: UpstreamInvalidResponse,
    aiohttp.ClientError: UpstreamInvalidResponse,
}

MESSAGES: dict[type[GatewayError], str] = {
    UpstreamUnavailable: "The engine cannot be reached. Try again in a few seconds.",
    UpstreamTimeout: "The engine did not answer in time. Try again, or ask for less.",
    UpstreamBroken: "The engine closed the connection before its answer was complete. Try again.",
    UpstreamInvalidResponse: "The engine sent something that is no valid answer. Try again.",
}

# What a call of the client may raise; anything else is a fault of ours.
CLIENT_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


def translate(exception: BaseException) -> GatewayError:
    """Return the error that a client exception means."""
    kind = next(TABLE[ancestor] for ancestor in type(exception).__mro__ if ancestor in TABLE)
    return kind(MESSAGES[kind])
