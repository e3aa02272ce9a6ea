"""uvicorn as the gateway needs it: stops in order with exit code 0."""

import resource
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from gateway.serving.protocol import Protocol

# Takes the next step of stopping and tells whether nothing is left to wait for.
Drain = Callable[[], bool]
# Longer than nginx keeps idle connections to us (30 s), so that it is never us who closes one it is using.
KEEP_ALIVE_SECONDS = 80
# What is left after the drain is connections whose last bytes are on their way.
LAST_BYTES_SECONDS = 3
BACKLOG = 2048


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
