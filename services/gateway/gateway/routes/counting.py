"""`POST /tokenize`: how many tokens a conversation takes, by the engine's own count.

The engine's answer also holds every token; only the numbers are passed on.
"""

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import orjson
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.errors import UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnavailable
from gateway.identity import Identity
from gateway.limits import Limits
from gateway.policy import Policy
from gateway.relay import Patience
from gateway.relay.refusal import refusal_of
from gateway.routes.bodies import BodyReader
from gateway.schemas import Exchange, Generation, exchange_of
from gateway.upstreams import EngineClient, Upstreams

# A conversation of 131,072 tokens takes the engine a fraction of a second.
COUNT_SECONDS = 10.0
# Some eight bytes a token, and the longest contexts have a million.
MAX_ANSWER_BYTES = 16_777_216
_OK = 200


class Counting:
    """Asks one ready engine, once; never waits for one."""

    def __init__(
        self,
        *,
        identity: Identity,
        bodies: BodyReader,
        policy: Policy,
        limits: Limits,
        upstreams: Upstreams,
        client: EngineClient,
    ) -> None:
        self._identity = identity
        self._bodies = bodies
        self._policy = policy
        self._limits = limits
        self._upstreams = upstreams
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises GatewayError, ClientDisconnected without a client."""
        exchange = exchange_of(scope)
        client = self._identity.client_of(scope)
        exchange.client = client.name
        with closing(Patience()) as patience:
            body = await self._bodies.read(scope, receive, patience)
        exchange.body_read_at = time.perf_counter()
        # It makes no tokens, and costs none.
        counted = replace(self._policy.check(scope["path"], body), max_tokens=0)
        grant = await self._limits.reserve(exchange, client, counted)
        try:
            numbers = await self._ask(exchange, counted)
        finally:
            self._limits.settle(grant, exchange, counted)
        await JSONResponse(numbers)(scope, receive, send)

    async def _ask(self, exchange: Exchange, counted: Generation) -> dict[str, int]:
        engine = self._upstreams.pick(lambda _engine: True, self._upstreams.known(counted.model))
        if engine is None:
            raise self._upstreams.not_ready()
        exchange.engine = engine.label
        try:
            async with asyncio.timeout(COUNT_SECONDS):
                with await self._client.post(engine, counted.path, counted.body, exchange.engine_headers) as answer:
                    if answer.status != _OK:
                        raise await refusal_of(answer)
                    return _numbers_in(await answer.read_whole(MAX_ANSWER_BYTES))
        except UpstreamUnavailable:
            engine.note_connect_fault()
            raise self._upstreams.not_ready() from None
        except TimeoutError:
            raise UpstreamTimeout(f"The engine did not count within {COUNT_SECONDS:.0f} s. Try again.") from None


def _numbers_in(body: bytes) -> dict[str, int]:
    try:
        answer: Any = orjson.loads(body)
        numbers = {name: answer[name] for name in ("count", "max_model_len")}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        numbers = {}
    if not numbers or not all(type(number) is int for number in numbers.values()):
        raise UpstreamInvalidResponse("The engine's answer is no count. Try again.")
    return numbers
