"""The two generation routes: tell who asks, read and check the body, count it, relay it.

The hot path: an ASGI callable without FastAPI's request and dependency machinery, which costs 0.2 ms.
"""

import asyncio
import time
from contextlib import closing

from starlette.types import Receive, Scope, Send

from gateway.errors import ClientDisconnected, Outcome
from gateway.identity import Identity
from gateway.limits import Limits
from gateway.policy import Policy
from gateway.relay import Patience, Relay
from gateway.routes.bodies import BodyReader
from gateway.schemas import Exchange, Generation, exchange_of, line_of

# Reading a larger body takes the loop's time from others, up to 50 ms for the most hostile of 2 MiB: it costs a request
# whether it is acceptable or not, and who has none left is refused before it is read.
COUNTED_UNREAD_BYTES = 16_384


class Generations:
    """Serves `POST /v1/chat/completions` and `POST /v1/completions`."""

    def __init__(self, identity: Identity, bodies: BodyReader, policy: Policy, limits: Limits, relay: Relay) -> None:
        self._identity = identity
        self._bodies = bodies
        self._policy = policy
        self._limits = limits
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises GatewayError before the first byte, ClientDisconnected without a client."""
        exchange = exchange_of(scope)
        with closing(Patience()) as patience:
            await self._serve(exchange, patience, scope, receive, send)

    async def _serve(self, exchange: Exchange, patience: Patience, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._identity.client_of(scope)
        exchange.client = client.name
        body = await self._bodies.read(scope, receive, patience)
        exchange.body_read_at = time.perf_counter()
        # What is to be counted; a large body is counted unread.
        generation = Generation(scope["path"], body, stream=False, hide_usage=False)
        is_large = len(body) > COUNTED_UNREAD_BYTES
        if not is_large:
            generation = self._policy.check(scope["path"], body)
        grant = await self._limits.reserve(exchange, client, generation)
        try:
            if is_large:
                generation = self._policy.check(scope["path"], body)
            await self._relay.run(exchange, generation, patience, line_of(scope), send)
        except (ClientDisconnected, asyncio.CancelledError):
            exchange.outcome = Outcome.DISCONNECTED
            raise
        finally:
            self._limits.settle(grant, exchange, generation)
