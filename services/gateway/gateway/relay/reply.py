"""The answer to the client: one start, whole events or one body, one end."""

import asyncio

from starlette.types import Message, Send

from gateway.errors import ClientDisconnected, GatewayError
from gateway.relay.patience import Patience
from gateway.schemas import Line
from gateway.sse import HEARTBEAT, error_event

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would hold events back until a buffer is full.
    (b"x-accel-buffering", b"no"),
)
# A last event that a client does not take in this time is lost with the connection.
LAST_EVENT_SECONDS = 5


class Reply:
    """Sends to the client; raises ClientDisconnected if it takes nothing for `stalled_after_seconds`."""

    __slots__ = ("_line", "_send", "_stalled_after_seconds", "patience", "started")

    def __init__(self, send: Send, line: Line, patience: Patience, stalled_after_seconds: float) -> None:
        self._send = send
        self._line = line
        self.patience = patience
        self._stalled_after_seconds = stalled_after_seconds
        self.started = False

    async def start_stream(self) -> None:
        """Send status 200 and a stream's headers; from here on an error can only be an event."""
        self.started = True
        await self._deliver({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})

    async def send_events(self, events: bytes, *, last: bool) -> None:
        """Send whole events; the last ones close the answer."""
        await self._deliver({"type": "http.response.body", "body": events, "more_body": not last})

    def pass_events(self, events: bytes) -> bool:
        """Send whole events, not the last, of a stream that has begun; False without effect if the client is slow."""
        return self._line.write(events)

    async def send_heartbeat(self) -> None:
        """Send a comment, so that nothing on the way takes silence for a dead connection."""
        await self.send_events(HEARTBEAT, last=False)

    async def send_whole(self, body: bytes) -> None:
        """Send an answer that is not streamed."""
        self.started = True
        headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
        await self._deliver({"type": "http.response.start", "status": 200, "headers": headers})
        await self._deliver({"type": "http.response.body", "body": body, "more_body": False})

    async def _deliver(self, message: Message) -> None:
        try:
            await self.patience.wait(self._send(message), self._stalled_after_seconds)
        except TimeoutError:
            raise ClientDisconnected from None

    async def end_with(self, error: GatewayError) -> None:
        """End a stream with one error event."""
        message = {"type": "http.response.body", "body": error_event(error), "more_body": False}
        try:
            async with asyncio.timeout(LAST_EVENT_SECONDS):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnected from None
