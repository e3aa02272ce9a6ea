"""The two generation routes: tell who asks, read and check the body, count it, relay it.

The hot path: an ASGI callable without FastAPI's request and dependency machinery, which costs 0.2 ms.
"""

import asyncio
import time

from starlette.types import Receive, Scope, Send

from gateway.errors import ClientDisconnected, Outcome, RequestTimeout, RequestTooLarge, UnsupportedEncoding
from gateway.identity import Identity
from gateway.limits import Limits
from gateway.policy import Policy
from gateway.relay import Relay
from gateway.schemas import Generation, exchange_of

# nginx has the whole body before it connects; only a client without it before can be slower.
BODY_SECONDS = 30.0
# Reading a larger body takes the loop's time from others, up to 50 ms for the most hostile of 2 MiB: it costs a request
# whether it is acceptable or not, and who has none left is refused before it is read.
COUNTED_UNREAD_BYTES = 16_384
_LENGTH_DIGITS = 18


def _announces_more(content_length: bytes, limit_bytes: int) -> bool:
    digits = content_length.strip().lstrip(b"0")
    # Python refuses to read a number of thousands of digits.
    return digits.isdigit() and (len(digits) > _LENGTH_DIGITS or int(digits) > limit_bytes)


class Generations:
    """Serves `POST /v1/chat/completions` and `POST /v1/completions`."""

    def __init__(self, identity: Identity, policy: Policy, limits: Limits, relay: Relay, max_body_bytes: int) -> None:
        self._identity = identity
        self._policy = policy
        self._limits = limits
        self._relay = relay
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises GatewayError before the first byte, ClientDisconnected without a client."""
        exchange = exchange_of(scope)
        client = self._identity.client_of(scope)
        exchange.client = client.name
        self._check_headers(scope["headers"])
        body = await self._read_body(receive)
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
            await self._relay.run(exchange, generation, receive, send)
        except (ClientDisconnected, asyncio.CancelledError):
            exchange.outcome = Outcome.DISCONNECTED
            raise
        finally:
            self._limits.settle(grant, exchange, generation)

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name == b"content-length" and _announces_more(value, self._max_body_bytes):
                raise self._too_large()
            if name == b"content-encoding" and value.lower() != b"identity":
                raise UnsupportedEncoding("Send the body uncompressed.", param="content-encoding")

    async def _read_body(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > self._max_body_bytes:
                        raise self._too_large()
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise RequestTimeout(f"The body did not arrive within {BODY_SECONDS:.0f} s.") from None

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The body is larger than {self._max_body_bytes} bytes. Send fewer or shorter messages.")
