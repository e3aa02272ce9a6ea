"""A gateway that fails on demand: what is asked says how. For faults alone; answers come from the real stack."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "faulty-model"
WORDS = "word "
REFUSALS = {
    "busy": (429, {"retry-after": "7"}, "Too many requests.", "rate_limited"),
    "loading": (503, {"retry-after": "9"}, "No engine is ready.", "not_ready"),
    "refuse": (400, {}, "temperature must be at most 2", "invalid_request"),
}


@dataclass
class FaultyGateway:
    """Answers `cut`, `fail`, `endless`, `busy`, `loading`, `refuse` and `too long` accordingly, else with `ANSWER`."""

    answer: str = ""
    prompts: list[list[dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    open_streams: int = 0
    aborted_streams: int = 0

    def application(self) -> Starlette:
        """Return the gateway as an ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "max_model_len": 2048}]})

    async def _chat(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        self.prompts.append(messages)
        self.headers.append(dict(request.headers))
        question = messages[-1]["content"]
        request_id = {"x-request-id": request.headers["x-request-id"]}
        if question in REFUSALS:
            status, headers, message, code = REFUSALS[question]
            return JSONResponse(_error(message, code), status, headers | request_id)
        if question == "too long" and len(messages) > 1:
            return JSONResponse(_error("too long", "bad", param="input_tokens"), 400, request_id)
        return StreamingResponse(self._stream(question), media_type="text/event-stream", headers=request_id)

    async def _stream(self, question: str) -> AsyncIterator[str]:
        self.open_streams += 1
        try:
            if question == "endless":
                while True:
                    yield _words(WORDS)
                    await asyncio.sleep(0.02)
            yield _words(self.answer or f"You said {question}.")
            if question == "cut":
                return
            if question == "fail":
                yield f"data: {json.dumps(_error('The engine stopped.', 'upstream_broken'))}\n\n"
                return
            yield 'data: {"choices": [], "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
        except asyncio.CancelledError:
            self.aborted_streams += 1
            raise
        finally:
            self.open_streams -= 1


def _error(message: str, code: str, param: str | None = None) -> object:
    return {"error": {"message": message, "type": "t", "param": param, "code": code}}


def _words(text: str) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]}, ensure_ascii=False)}\n\n"
