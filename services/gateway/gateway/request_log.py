"""A line for each finished request, written with those of others a moment later.

No prompt, no answer, no key is ever logged; fields are the ones named here. The client is logged as it is counted:
an address, the /64 of one, or a key's name, as nginx's own log has it, since whoever floods must be found.
"""

import asyncio
import logging
import time
from typing import Any

from gateway.errors import Outcome
from gateway.logs import Batch
from gateway.schemas import RELAYED_ROUTES, Exchange

# A line by itself costs a request a seventh of its CPU time (bench/README.md); waiting so long costs nobody anything.
FLUSH_SECONDS = 0.05
MOST_HELD = 256
_MILLISECONDS = 1000.0
_QUIET = frozenset({"livez", "readyz", "metrics", "status"})


class RequestLog:
    """Holds lines until `flush`, which comes by itself; call it too when the process ends."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("gateway.requests")
        self._held: list[dict[str, Any]] = []

    def note(self, exchange: Exchange, outcome: Outcome, finished_at: float) -> None:
        """Take a finished request; the probes' own only at level debug. Called in a running loop."""
        if not self._logger.isEnabledFor(logging.DEBUG if exchange.route in _QUIET else logging.INFO):
            return
        self._held.append({"time": time.time(), **_fields(exchange, outcome, finished_at)})
        if len(self._held) == 1:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        elif len(self._held) >= MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        held, self._held = self._held, []
        if held:
            self._logger.handle(Batch(self._logger.name, "request", held))


def _fields(exchange: Exchange, outcome: Outcome, finished_at: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "request_id": exchange.request_id,
        "route": exchange.route,
        "outcome": outcome,
        "status": exchange.status,
        "duration_ms": _milliseconds(finished_at - exchange.received_at),
    }
    if exchange.error_code:
        fields["error"] = exchange.error_code
    if exchange.route in RELAYED_ROUTES:
        fields |= {
            "engine_request_id": exchange.engine_request_id,
            "client": exchange.client,
            "stream": exchange.streamed,
            "engine": exchange.engine,
            "first_token_ms": _milliseconds(exchange.engine_answered_at - exchange.received_at)
            if exchange.streamed and exchange.engine_answered_at
            else None,
            "prompt_tokens": exchange.prompt_tokens,
            "completion_tokens": exchange.completion_tokens,
        }
    return fields


def _milliseconds(seconds: float) -> float:
    return round(seconds * _MILLISECONDS, 2)
