"""What each client raises: its own class for the status, with the words, code and field of whoever refused."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.clients.driver import Ask, Clients, Told, url_of
from tests.fakes.engine import TEXT, Call, FakeEngine, after_events
from tests.fakes.gateway import RunningGateway, assert_quiescent, running_gateway

pytestmark = pytest.mark.process

# The clients' own names for a status, in the order Python, Node, LangChain.
KINDS = {
    400: ("BadRequestError", "BadRequestError", "OpenAIInvalidRequestError"),
    404: ("NotFoundError", "NotFoundError", "OpenAIModelNotFoundError"),
    413: ("APIStatusError", "APIError", "APIStatusError"),
    429: ("RateLimitError", "RateLimitError", "OpenAIRateLimitError"),
    502: ("InternalServerError", "InternalServerError", "OpenAIAPIError"),
    503: ("InternalServerError", "InternalServerError", "OpenAIAPIError"),
    504: ("InternalServerError", "InternalServerError", "OpenAIAPIError"),
}


@dataclass(frozen=True)
class Case:
    """A request that ends in an error, and what the client's user can read from it."""

    status: int
    code: str
    words: str
    param: str | None = None
    model: str = "ernie-demo"
    extra: dict[str, Any] = field(default_factory=dict)


def refused(by_engine: int, status: int, code: str, words: str, param: str | None = None) -> Case:
    return Case(status, code, words, param, extra={"user": str(by_engine)})


CASES = [
    Case(400, "invalid_request", "'chat_template' is not accepted", "chat_template", extra={"chat_template": "{{1}}"}),
    Case(400, "invalid_request", "'temperature' must be a number", "temperature", extra={"temperature": 9}),
    Case(413, "request_too_large", "larger than 2048 bytes", extra={"stop": ["x" * 2048]}),
    Case(404, "404", "words 404", "engine's", model="nobody"),
    refused(400, 400, "400", "words 400", "engine's"),
    refused(429, 429, "429", "words 429", "engine's"),
    refused(500, 502, "upstream_failed", "The engine failed"),
    refused(503, 503, "overloaded", "Try again in a few seconds"),
    refused(504, 504, "upstream_timeout", "did not answer in time"),
]


async def refuse(call: Call) -> None:
    """Refuse with the status that the request names; the model of a request without one is unknown."""
    status = int(call.json.get("user", 404))
    error = {"message": f"words {status}", "type": "T", "param": "engine's", "code": status}
    call.whole(status, json.dumps({"error": error}).encode())


async def test_errors_are_of_the_right_class_and_say_what_happened(clients: Clients, engine: FakeEngine) -> None:
    engine.script = refuse
    async with running_gateway(engine, GATEWAY_MAX_BODY_BYTES="2048") as gateway:
        asks = [
            (case, stream, clients.ask(url_of(gateway), Ask(stream=stream, model=case.model, extra=case.extra)))
            for case in CASES
            for stream in (False, True)
        ]
        answers = await asyncio.gather(*(answers for _, _, answers in asks))
    for (case, stream, _), told in zip(asks, answers, strict=True):
        for kind, (client, one) in zip(KINDS[case.status], told.items(), strict=True):
            where = (client, case, stream, one)
            assert one.texts == [], where
            assert one.failure is not None, where
            found = (one.failure.kind, one.failure.status, one.failure.code, one.failure.param)
            assert found == (kind, case.status, case.code, case.param), where
            assert case.words in one.failure.message, where
            assert one.failure.request_id, where


def fail(call: Call) -> None:
    """End a stream with an error event, as vLLM does when its engine dies."""
    call.chunk(b'data: {"error":{"message":"CUDA","type":"InternalServerError","param":null,"code":500}}\n\n')
    call.end()


CUTS = {
    "fin": (lambda call: call.fin(), "upstream_broken"),
    "reset": (lambda call: call.reset(), "upstream_broken"),
    "end without [DONE]": (lambda call: call.end(), "upstream_truncated"),
    "error event": (fail, "upstream_failed"),
}


async def test_stream_that_breaks_is_an_error_and_is_not_tried_again(
    clients: Clients, engine: FakeEngine, gateway: RunningGateway
) -> None:
    async def script(call: Call) -> None:
        await after_events(2, CUTS[call.json["user"]][0])(call)

    engine.script = script
    asks = (clients.ask(url_of(gateway), Ask(stream=True, retries=2, extra={"user": cut})) for cut in CUTS)
    answers = await asyncio.gather(*asks)
    assert len(engine.calls) == len(CUTS) * len(list(clients)), "text that was shown must not be generated again"
    for (cut, (_, code)), told in zip(CUTS.items(), answers, strict=True):
        assert {name: seen(one) for name, one in told.items()} == clients.all((list(TEXT[:2]), "APIError", code)), cut
    await assert_quiescent(gateway, engine)


def seen(told: Told) -> tuple[list[str], str | None, str | None]:
    return told.texts, told.failure and told.failure.kind, told.failure and told.failure.code
