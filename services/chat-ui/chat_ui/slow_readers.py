"""Browsers that read too slowly, or no more: each is given up in time, and holds little until then.

Engine.IO keeps what it sends to a browser in a queue without a bound (python-engineio issue 133) and waits without a
limit for its websocket's writer; uvicorn closes a websocket only once all is sent. A page that is given up has lost its
connection and nothing else: it comes back, and is brought up to date.
"""

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from engineio import async_server, packet
from engineio.async_socket import AsyncSocket
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("chat_ui")

# What a browser has not taken anything of between two looks goes no way. Engine.IO's own patience is 20 s.
LOOK_SECONDS = 10.0
# Minutes of an answer that comes as fast as any. As much again may be with the writer.
MAX_WAITING_CHARACTERS = 4_000_000

# What a connection tells in its ASGI scope: a function that ends it at once.
ABORT = "chat_ui.abort"


class BrowserSocket(WSProtocol):
    """uvicorn's websocket, which ends one or two looks after its browser took the last byte of what has to go out."""

    _timer: asyncio.TimerHandle | None = None
    _unsent_bytes = math.inf

    def handle_connect(self, event: events.Request) -> None:
        """Begin to look."""
        super().handle_connect(event)
        self.scope["extensions"][ABORT] = {"call": self.transport.abort}
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        # While neither waits, more may be added between two looks, and the size says nothing.
        is_waited_for = self.transport.is_closing() or not self.writable.is_set()
        if is_waited_for and unsent_bytes >= self._unsent_bytes:
            logger.warning("gave up a page that had taken nothing for %g s", LOOK_SECONDS)
            self.transport.abort()
            return
        self._unsent_bytes = unsent_bytes if is_waited_for else math.inf
        self._timer = self.loop.call_later(LOOK_SECONDS, self._look)


class Outbox(AsyncSocket):  # type: ignore[misc]
    """Engine.IO's way to one browser, which ends when more waits for it than `MAX_WAITING_CHARACTERS`.

    The longest packet does not count: a kept conversation is sent whole, and its reader is not slow yet.
    """

    def __init__(self, server: Any, sid: str) -> None:
        super().__init__(server, sid)
        self._waiting_characters = self._longest_characters = 0
        self._abort: Callable[[], None] | None = None
        self._is_given_up = False

    async def poll(self) -> list[packet.Packet]:
        """Return all that waits."""
        packets: list[packet.Packet] = await super().poll()
        self._waiting_characters -= sum(map(_length, packets))
        return packets

    async def send(self, pkt: packet.Packet) -> None:
        """Let a packet wait its turn; what comes after the bound is for nobody."""
        if self._waiting_characters <= MAX_WAITING_CHARACTERS + self._longest_characters:
            length = _length(pkt)
            self._waiting_characters += length
            self._longest_characters = max(self._longest_characters, length)
            await super().send(pkt)
        elif not self._is_given_up:
            self._is_given_up = True
            logger.warning("gave up a page that reads too slowly: %d characters wait", self._waiting_characters)
            if self._abort:
                self._abort()
            else:
                await self.close(wait=False, abort=True)
                # For a poll that came meanwhile: the next one is told that all is over.
                await self.queue.put(None)

    async def _upgrade_websocket(self, environ: dict[str, Any]) -> Any:
        self._abort = environ["asgi.scope"]["extensions"][ABORT]["call"]
        return await super()._upgrade_websocket(environ)


def bound_outboxes() -> None:
    """Let Engine.IO use an `Outbox` for each browser from now on."""
    async_server.async_socket.AsyncSocket = Outbox


def _length(pkt: packet.Packet) -> int:
    # Text but for binary packets, which this page has none of; control packets carry little or nothing.
    return len(pkt.data) if isinstance(pkt.data, str | bytes) else 0
