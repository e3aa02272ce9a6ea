"""uvicorn as the gateway needs it: stops in order with exit code 0, refuses broken HTTP in the error shape."""

import resource
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import GatewayError, HeadTooLarge, InvalidRequest

# Takes the next step of stopping and tells whether nothing is left to wait for.
Drain = Callable[[], bool]
# Longer than nginx keeps idle connections to us (30 s), so that it is never us who closes one it is using.
KEEP_ALIVE_SECONDS = 80
# What is left after the drain is connections whose last bytes are on their way.
LAST_BYTES_SECONDS = 3
BACKLOG = 2048
# nginx takes 32 KiB.
MAX_HEAD_BYTES = 65_536
_TOO_LARGE = f"The request's headers are larger than {MAX_HEAD_BYTES} bytes."


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 by httptools; what is no HTTP, or has an endless head, gets the error shape too.

    The parser collects a line for as long as it grows, so both are bounded: the target and the headers (trailers
    too) of a request, and what arrives without completing any of them.
    """

    _head_bytes = 0
    _unread_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Read on; refuse what completes nothing and grows beyond the limit."""
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(HeadTooLarge(_TOO_LARGE))

    def on_message_begin(self) -> None:
        """Begin to count a head's bytes."""
        self._head_bytes = self._unread_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header or a trailer."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, which has its own limit."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be read, and close."""
        self._refuse(HeadTooLarge(_TOO_LARGE) if self._head_bytes > MAX_HEAD_BYTES else InvalidRequest(msg))

    def _count(self, size: int) -> None:
        self._unread_bytes = 0
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            # Ends the parser; `send_400_response` follows.
            raise HeadTooLarge(_TOO_LARGE)

    def _refuse(self, error: GatewayError) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            # An answer is on its way; nothing else may be written into it.
            self.transport.close()
            return
        body = error.encode()
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class Server(uvicorn.Server):
    """A server that goes on listening while it drains: probes see it not ready, new requests get 503."""

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self._drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  (uvicorn's signature)
        """Begin to stop; a second SIGINT stops at once.

        uvicorn would also remember the signal and raise it again at the end: the exit code would not be 0.
        """
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Tell ten times a second whether to shut down: when asked to, and everything has drained."""
        if not await super().on_tick(counter):
            return False
        return self.force_exit or self._drain()


def listen(host: str, port: int, *, one_of_several: bool = False) -> socket.socket:
    """Return the listening socket; raises OSError if the address cannot be had.

    Among several of one address the system shares connections out.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=one_of_several)


def make_server(app: ASGIApp, drain: Drain) -> Server:
    """Return the server of an application, not started yet: `run` it, or await `serve`, with a listening socket."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=LAST_BYTES_SECONDS,
    )
    return Server(config, drain)


def raise_file_limit() -> None:
    """Take as many open files as the system allows: each stream needs two, and 1,024 is a common default."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
