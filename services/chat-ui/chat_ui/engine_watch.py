"""How far the engine is, asked once for all pages, and only while one of them wants to know."""

import asyncio
import time

from chat_ui.engine_state import EngineState
from chat_ui.errors import ChatError
from chat_ui.gateway import Gateway

# Stages last seconds to minutes.
FRESH_SECONDS = 2.0


class EngineWatch:
    """The state of the engine, at most two seconds old; asks the gateway only when asked itself."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = asyncio.Lock()
        self._state: EngineState | None = None
        self._fresh_until = 0.0

    async def state(self) -> EngineState | None:
        """Return the state; None where the gateway cannot be reached. Takes three seconds at most."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                try:
                    self._state = await self._gateway.engine_state()
                except ChatError:
                    self._state = None
                self._fresh_until = time.monotonic() + FRESH_SECONDS
            return self._state
