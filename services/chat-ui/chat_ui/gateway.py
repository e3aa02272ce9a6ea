"""The gateway as the page sees it: the served models, and one answer as a stream of text.

One client for the process. Nothing is tried twice: one question is one generation upstream.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass

import httpx

from chat_ui.conversation import Messages
from chat_ui.engine_state import EngineState, read_report
from chat_ui.errors import AnswerCut, AnswerTimedOut, ChatError, EngineNotReady, GatewayUnreachable, UpstreamFailed
from chat_ui.gateway_key import GatewayKey
from chat_ui.refusals import failure_of, id_of, refusal_of
from chat_ui.sse import Comment, Data, read_events

MODELS_FRESH_SECONDS = 10
MODELS_TIMEOUT_SECONDS = 10
STATE_TIMEOUT_SECONDS = 3
COUNT_TIMEOUT_SECONDS = 5

# A stream that does not close by itself after its end mark is not waited for.
DRAIN_SECONDS = 1

PLACE = re.compile(r"waiting place=(?P<place>\d{1,9})(?: seconds_left=(?P<seconds>\d{1,9}))?$")


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
class Place:
    """The request waits: it is the `place`th to be served; `seconds_left` is None where nobody knows."""

    place: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens by the engine's own count."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine ended a whole answer: `stop`, or `length` where the limit cut it; and what it cost."""

    reason: str
    usage: Usage | None = None


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
            raise refusal_of(response, response.content)
        try:
            cards = response.json()["data"]
            models = tuple(Model(str(card["id"]), card.get("max_model_len")) for card in cards)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UpstreamFailed("unreadable list of models", request_id=id_of(response)) from error
        if not models:
            raise EngineNotReady(request_id=id_of(response))
        self._models, self._models_fresh_until = models, time.monotonic() + MODELS_FRESH_SECONDS
        return models

    def forget_models(self) -> None:
        """Ask again at the next call: the engine may serve another model now."""
        self._models_fresh_until = 0.0

    async def count_tokens(self, model: str, messages: Messages, headers: dict[str, str]) -> int | None:
        """Return how many tokens a prompt takes by the engine's count; None where that cannot be told now."""
        body = {"model": model, "messages": messages}
        try:
            with _translated(headers):
                response = await self._client.post(
                    "/tokenize", json=body, headers=self._signed(headers), timeout=COUNT_TIMEOUT_SECONDS
                )
        except ChatError:
            return None
        try:
            count = response.json()["count"]
        except (ValueError, KeyError, TypeError):
            return None
        return count if isinstance(count, int) else None

    async def engine_state(self) -> EngineState:
        """Ask how far the engine is; raises `ChatError` where the gateway does not tell."""
        with _translated(None):
            response = await self._client.get("/readyz?verbose", timeout=STATE_TIMEOUT_SECONDS)
        try:
            return read_report(response.json())
        except ValueError as error:
            raise UpstreamFailed("unreadable state of the engine") from error

    async def stream_answer(
        self, model: str | None, messages: Messages, parameters: dict[str, float], headers: dict[str, str]
    ) -> AsyncGenerator[Piece | Place | Finish]:
        """Yield the request's places in the queue, the pieces of one answer, then how it finished.

        Without a model the engine takes its own. Raises `ChatError`, `AnswerCut` only if words had come before.
        Cancelling closes the connection, which makes the gateway abort the generation.
        """
        body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, **parameters}
        if model is not None:
            body["model"] = model
        began = False
        try:
            async with contextlib.aclosing(self._stream(body, headers)) as parts:
                async for part in parts:
                    began = began or isinstance(part, Piece)
                    yield part
        except AnswerCut as error:
            if began:
                raise
            # Only its wait was cut: not a word was lost.
            raise GatewayUnreachable(error.detail, request_id=error.request_id) from error

    async def _stream(self, body: dict[str, object], headers: dict[str, str]) -> AsyncGenerator[Piece | Place | Finish]:
        with _translated(headers):
            async with self._client.stream(
                "POST", "/v1/chat/completions", json=body, headers=self._signed(headers)
            ) as response:
                if response.is_error:
                    raise refusal_of(response, await response.aread())
                events = read_events(response.aiter_bytes())
                async for part in _read_answer(events, id_of(response)):
                    yield part
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


async def _read_answer(
    events: AsyncIterator[Comment | Data], request_id: str
) -> AsyncGenerator[Piece | Place | Finish]:
    """Read events up to the end mark; raises `ChatError` for an error event and for a stream without the mark."""
    began, reason, usage = False, "", None
    async for event in events:
        if isinstance(event, Comment):
            if not began and (place := _read_place(event.text)):
                yield place
            continue
        if event.text == "[DONE]":
            yield Finish(reason or "stop", usage)
            return
        chunk = _read_chunk(event.text, request_id, began=began)
        reason, usage = chunk.reason or reason, chunk.usage or usage
        if chunk.text:
            began = True
            yield Piece(chunk.text)
    raise AnswerCut(request_id=request_id)


def _read_place(comment: str) -> Place | None:
    """Read the gateway's word on the queue; its other comments only keep the stream open."""
    told = PLACE.match(comment)
    if told is None:
        return None
    return Place(int(told["place"]), float(told["seconds"]) if told["seconds"] else None)


@dataclass(frozen=True, slots=True)
class _Chunk:
    text: str
    reason: str
    usage: Usage | None


def _read_chunk(text: str, request_id: str, *, began: bool) -> _Chunk:
    """Read one event; raises the error that it tells. A chunk of usage alone has no text."""
    try:
        chunk = json.loads(text)
    except ValueError as error:
        raise AnswerCut("unreadable event", request_id=request_id) from error
    if not isinstance(chunk, dict):
        raise AnswerCut("unreadable event", request_id=request_id)
    if "error" in chunk:
        raise failure_of(chunk, request_id=request_id, began=began)
    choices = chunk.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return _Chunk(delta.get("content") or "", choices[0].get("finish_reason") or "", _read_usage(chunk.get("usage")))


def _read_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(prompt, completion) if isinstance(prompt, int) and isinstance(completion, int) else None
