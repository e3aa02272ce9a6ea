"""The gateway as the page sees it: the served models, and one answer as a stream of text.

One client for the process. Nothing is tried twice: one question is one generation upstream.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from chat_ui.errors import (
    AnswerCut,
    AnswerTimedOut,
    ChatError,
    ContextTooLong,
    EngineBusy,
    EngineNotReady,
    GatewayUnreachable,
    RateLimited,
    RequestRefused,
    UpstreamFailed,
)
from chat_ui.gateway_key import GatewayKey
from chat_ui.sse import Data, read_events

MODELS_FRESH_SECONDS = 10
MODELS_TIMEOUT_SECONDS = 10

# A stream that does not close by itself after its end mark is not waited for.
DRAIN_SECONDS = 1

# How vLLM (`param`) and OpenAI (`code`) name a prompt that does not fit.
TOO_LONG_PARAMS = frozenset({"input_tokens", "input_text", "max_tokens", "max_completion_tokens"})
TOO_LONG_CODE = "context_length_exceeded"
BUSY_CODES = frozenset({"overloaded"})
FIRST_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Model:
    """A served model; `context_tokens` is None where the engine does not tell."""

    id: str
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """The next words of an answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine ended a whole answer: `stop`, or `length` where the limit cut it."""

    reason: str


class Gateway:
    """A client of one gateway. Proxies of the environment are not used."""

    def __init__(
        self, base_url: str, key: GatewayKey, *, connect_timeout_seconds: float, idle_timeout_seconds: float
    ) -> None:
        self._key = key
        timeout = httpx.Timeout(idle_timeout_seconds, connect=connect_timeout_seconds, pool=connect_timeout_seconds)
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=50, keepalive_expiry=4)
        self._client = httpx.AsyncClient(base_url=base_url, timeout=timeout, limits=limits, trust_env=False)
        self._models: tuple[Model, ...] = ()
        self._models_fresh_until = 0.0

    async def close(self) -> None:
        """Close all connections; answers under way end."""
        await self._client.aclose()

    async def models(self, headers: dict[str, str] | None = None) -> tuple[Model, ...]:
        """Return the served models, at most ten seconds old; raises `ChatError`."""
        if self._models and time.monotonic() < self._models_fresh_until:
            return self._models
        with _translated(headers):
            response = await self._client.get(
                "/v1/models", headers=self._signed(headers), timeout=MODELS_TIMEOUT_SECONDS
            )
        if response.is_error:
            raise _refusal(response, response.content)
        try:
            cards = response.json()["data"]
            models = tuple(Model(str(card["id"]), card.get("max_model_len")) for card in cards)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UpstreamFailed("unreadable list of models", request_id=_id_of(response)) from error
        if not models:
            raise EngineNotReady(request_id=_id_of(response))
        self._models, self._models_fresh_until = models, time.monotonic() + MODELS_FRESH_SECONDS
        return models

    def forget_models(self) -> None:
        """Ask again at the next call: the engine may serve another model now."""
        self._models_fresh_until = 0.0

    async def stream_answer(
        self, model: str, messages: list[dict[str, str]], max_tokens: int, headers: dict[str, str]
    ) -> AsyncGenerator[Piece | Finish]:
        """Yield the pieces of one answer, then how it finished.

        Raises `ChatError`, `AnswerCut` if words had come before. Cancelling closes the connection, which makes the
        gateway abort the generation.
        """
        body = {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": True}
        with _translated(headers):
            async with self._client.stream(
                "POST", "/v1/chat/completions", json=body, headers=self._signed(headers)
            ) as response:
                if response.is_error:
                    raise _refusal(response, await response.aread())
                events = read_events(response.aiter_bytes())
                reason = ""
                async for event in events:
                    if not isinstance(event, Data):
                        continue
                    if event.text == "[DONE]":
                        break
                    text, finish = _read_chunk(event.text, _id_of(response))
                    reason = finish or reason
                    if text:
                        yield Piece(text)
                else:
                    raise AnswerCut(request_id=_id_of(response))
                yield Finish(reason or "stop")
                # Read to the end, so that the connection serves the next question.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAIN_SECONDS):
                        async for _ in events:
                            pass

    def _signed(self, headers: dict[str, str] | None) -> dict[str, str]:
        return (headers or {}) | self._key.headers()


@contextlib.contextmanager
def _translated(headers: dict[str, str] | None) -> Iterator[None]:
    """Turn the client's exceptions into `ChatError`; the only place that knows them."""
    request_id = (headers or {}).get("x-request-id", "")
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise GatewayUnreachable(repr(error), request_id=request_id) from error
    except httpx.TimeoutException as error:
        raise AnswerTimedOut(repr(error), request_id=request_id) from error
    except httpx.TransportError as error:
        raise AnswerCut(repr(error), request_id=request_id) from error


def _id_of(response: httpx.Response) -> str:
    sent = response.request.headers.get("x-request-id", "")
    return str(response.headers.get("x-request-id", sent))


def _read_chunk(text: str, request_id: str) -> tuple[str, str]:
    """Return the text and the finish reason of one chunk; a chunk of usage alone holds neither."""
    try:
        chunk = json.loads(text)
    except ValueError as error:
        raise AnswerCut("unreadable event", request_id=request_id) from error
    if not isinstance(chunk, dict):
        raise AnswerCut("unreadable event", request_id=request_id)
    if "error" in chunk:
        raise AnswerCut(_error_fields(chunk)[0], request_id=request_id)
    choices = chunk.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return delta.get("content") or "", choices[0].get("finish_reason") or ""


def _error_fields(body: Any) -> tuple[str, str, str]:
    """Return message, param and code of an error body, empty where they are missing."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return str(error or ""), "", ""
    return str(error.get("message") or ""), str(error.get("param") or ""), str(error.get("code") or "")


def _refusal(response: httpx.Response, content: bytes) -> ChatError:
    """Make the error that fits the status of an answer refused before its first word."""
    try:
        message, param, code = _error_fields(json.loads(content))
    except ValueError:
        message, param, code = "", "", ""
    kind: type[ChatError]
    match response.status_code:
        case 429:
            kind = RateLimited
        case 503:
            kind = EngineBusy if code in BUSY_CODES else EngineNotReady
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
        request_id=_id_of(response),
        retry_after_seconds=int(seconds) if seconds.isdecimal() else None,
    )
