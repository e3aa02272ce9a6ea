"""A launcher's `/status` on a real socket: says what a test sets, as a launcher does or not at all like one."""

import json
import time
from typing import TYPE_CHECKING, Any, Self

from tests.fakes.call import Call
from tests.fakes.server import Server

if TYPE_CHECKING:
    from tests.fakes.scripts import Script


class FakeLauncher:
    """The launcher; an asynchronous context manager that listens on a free port of 127.0.0.1 unless told otherwise.

    `script` answers instead of it, if a test sets one.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.stage = "checking"
        self.progress: float | None = None
        self.detail: str | None = None
        self.engines: list[dict[str, Any]] = []
        self.cards: list[dict[str, Any]] = []
        self.script: Script | None = None
        self.asked = 0
        self.server = Server(self.handle, host, port)

    @property
    def port(self) -> int:
        """The port, once started."""
        return self.server.port

    @property
    def upstream(self) -> str:
        """The value of GATEWAY_UPSTREAMS that means it."""
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        return f"launcher://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    def runs(self, *ports: int, stage: str = "serving", **more: Any) -> None:
        """List exactly these engines, all at one stage."""
        self.stage = stage
        self.engines = [engine_status(port, stage, **more) for port in ports]

    @property
    def body(self) -> dict[str, Any]:
        """What it says now."""
        return {
            "version": 1,
            "model": "ernie-demo",
            "stage": self.stage,
            "since": time.time() - 1,
            "progress": self.progress,
            "detail": self.detail,
            "engines": self.engines,
            "cards": self.cards,
        }

    async def handle(self, call: Call) -> None:
        """Answer one request."""
        self.asked += 1
        if self.script is not None:
            await self.script(call)
        elif call.path == "/status":
            call.whole(200, json.dumps(self.body).encode())
        else:
            call.whole(404, b"")


def engine_status(port: int, stage: str, **more: Any) -> dict[str, Any]:
    """Return what a launcher says of one engine, that it knows not how many sequences this runs among it."""
    status = {"port": port, "sequences": None, "stage": stage, "since": time.time() - 1, "started_at": None}
    return {**status, "progress": None, "detail": None, **more}
