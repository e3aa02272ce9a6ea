"""Faults of the client: it leaves, or takes nothing, and the engine's work for it must end."""

import asyncio
import socket
from dataclasses import dataclass

from tests.fakes.call import reset
from tests.fakes.lab.client import Conversation, chat


@dataclass(frozen=True, slots=True)
class Departure:
    """A client that does not wait for the end; what it asks for, and how it goes.

    `limit_seconds`: within what time the engine must see it gone.
    """

    name: str
    client_does: str
    model: str
    stream: bool
    reads: bool = False
    resets: bool = False
    stays: bool = False
    limit_seconds: float = 1.0

    async def begin(self, url: str) -> Conversation:
        """Ask, and read as much as this client reads."""
        conversation = await chat(url, self.model, stream=self.stream)
        if self.stays:
            sock = conversation.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            conversation.writer.transport.pause_reading()  # type: ignore[attr-defined]
        if self.reads:
            await asyncio.wait_for(conversation.reader.readuntil(b"data: "), 5)
        return conversation

    def go(self, conversation: Conversation) -> None:
        """Leave, in the way of this client."""
        if self.stays:
            return
        if self.resets:
            reset(conversation.writer.transport)
        else:
            conversation.leave()


DEPARTURES = (
    Departure("leaves-before-first-byte", "leaves before a stream begins", "never-answers", stream=True),
    Departure("leaves-mid-stream", "leaves in the middle of a stream", "silence-mid-stream", stream=True, reads=True),
    Departure(
        "resets-mid-stream",
        "resets its connection in the middle of a stream",
        "silence-mid-stream",
        stream=True,
        reads=True,
        resets=True,
    ),
    Departure("leaves-whole-answer", "leaves before a whole answer comes", "never-answers", stream=False),
    Departure("takes-nothing", "reads nothing of a large stream", "flood", stream=True, stays=True, limit_seconds=4.0),
)
