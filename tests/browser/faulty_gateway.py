"""A gateway that fails on demand: what is asked says how. For faults alone; answers come from the real stack."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "faulty-model"
CONTEXT_TOKENS = 2048
WORDS = "word "
QUICK_WORDS = 30
# More than a browser gets in an hour, so that what is not read piles up in seconds.
FLOOD = "much text " * 10_000 + "\n\n"
REFUSALS = {
    "busy": (429, {"retry-after": "9"}, "Too many requests.", "rate_limit_exceeded"),
    "busy for long": (429, {"retry-after": "25"}, "Too many requests.", "rate_limit_exceeded"),
    "full": (503, {"retry-after": "8"}, "Too many wait.", "overloaded"),
    "loading": (503, {"retry-after": "9"}, "No engine is ready.", "not_ready"),
    "refuse": (400, {}, "temperature must be at most 2", "invalid_request"),
}
LOADING = {
    "engines": [{"state": "loading", "stage": {"name": "loading", "progress": 0.45}}],
    "seconds_left": 41.0,
    "ready": False,
}
PLACE = ": waiting place=3 seconds_left=41\n\n"


@dataclass
class FaultyGateway:
    """Answers the questions of its methods accordingly, else with `answer`.

    While it is `loading` no model is listed and every answer waits, telling a place in the queue. `refusals_left` is
    how often it still refuses. Every character is a token to it.
    """

    answer: str = ""
    loading: bool = False
    refusals_left: int = 1_000_000
    prompts: list[list[dict[str, str]]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    looks: int = 0
    counts: int = 0
    open_streams: int = 0
    aborted_streams: int = 0
    flood_bytes: int = 0

    def application(self) -> Starlette:
        """Return the gateway as an ASGI application."""
        return Starlette(
            routes=[
                Route("/readyz", self._readyz),
                Route("/tokenize", self._tokenize, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _readyz(self, _request: Request) -> Response:
        self.looks += 1
        return JSONResponse(LOADING, 503) if self.loading else JSONResponse({"status": "ready", "ready": True})

    async def _tokenize(self, request: Request) -> Response:
        self.counts += 1
        messages = (await request.json())["messages"]
        return JSONResponse({"count": _tokens(messages), "max_model_len": CONTEXT_TOKENS})

    async def _models(self, _request: Request) -> Response:
        if self.loading:
            return JSONResponse(_error("No engine is ready.", "not_ready"), 503, {"retry-after": "5"})
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": CONTEXT_TOKENS}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        messages = body["messages"]
        self.bodies.append(body)
        self.prompts.append(messages)
        self.headers.append(dict(request.headers))
        question = messages[-1]["content"]
        request_id = {"x-request-id": request.headers["x-request-id"]}
        if question in REFUSALS and self.refusals_left:
            self.refusals_left -= 1
            status, headers, message, code = REFUSALS[question]
            return JSONResponse(_error(message, code), status, headers | request_id)
        if question == "too long" and len(messages) > 1:
            return JSONResponse(_error("too long", "bad", param="input_tokens"), 400, request_id)
        return StreamingResponse(self._stream(question, messages), media_type="text/event-stream", headers=request_id)

    async def _stream(self, question: str, messages: list[dict[str, str]]) -> AsyncIterator[str]:
        self.open_streams += 1
        try:
            if self.loading or question == "give up":
                yield PLACE
            while self.loading:  # noqa: ASYNC110 - ended from the thread of a test
                await asyncio.sleep(0.02)
            if question == "give up":
                yield f"data: {json.dumps(_error('No engine has room.', 'overloaded'))}\n\n"
                return
            async for text in self._at_length(question):
                yield _words(text)
            answer = self.answer or f"You said {question}."
            yield _words(answer)
            if question == "cut":
                return
            if question == "fail":
                yield f"data: {json.dumps(_error('The engine stopped.', 'upstream_broken'))}\n\n"
                return
            if question == "short":
                yield 'data: {"choices": [{"delta": {}, "finish_reason": "length"}]}\n\n'
            usage = {"prompt_tokens": _tokens(messages), "completion_tokens": len(answer)}
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"
        except asyncio.CancelledError:
            self.aborted_streams += 1
            raise
        finally:
            self.open_streams -= 1

    async def _at_length(self, question: str) -> AsyncIterator[str]:
        """Yield what comes before the answer proper, piece by piece."""
        if question == "endless":
            for number in itertools.count():
                yield WORDS
                # A browser on a busy machine must keep up, or nothing on its page can be clicked.
                await asyncio.sleep(0.02 if number < QUICK_WORDS else 0.5)
        if question.startswith("flood"):
            for _ in range(int(question.removeprefix("flood") or sys.maxsize)):
                yield FLOOD
                self.flood_bytes += len(FLOOD)
                await asyncio.sleep(0.02)
        if question.startswith("count to"):
            for number in range(int(question.removeprefix("count to"))):
                yield f"{number} "
                await asyncio.sleep(0.02)


def _tokens(messages: list[dict[str, str]]) -> int:
    return sum(len(message["content"]) for message in messages)


def _error(message: str, code: str, param: str | None = None) -> object:
    return {"error": {"message": message, "type": "t", "param": param, "code": code}}


def _words(text: str) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]}, ensure_ascii=False)}\n\n"
