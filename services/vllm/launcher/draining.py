"""The last second before vLLM is stopped: nobody new is let in, and its health check says so.

vLLM 0.32 finishes the requests that it has when it gets SIGTERM, but goes on taking new ones for as long as that and
its teardown last, says 200 to health checks, and answers each with a bare 500. So the launcher puts up a notice first,
a file; this middleware, which runs inside vLLM (`--middleware`), sees it, and whoever routes requests sends them
elsewhere or lets them wait.
"""

import json
import os
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from launcher.settings import process_environment

if TYPE_CHECKING:
    # vLLM's process imports this module, and needs no more of the launcher.
    from launcher.command import Command

# Names the file for the process in which the middleware runs.
VARIABLE = "LAUNCHER_DRAIN_NOTICE"
MIDDLEWARE = f"{__name__}.Draining"
_RETRY_AFTER_SECONDS = 10
_BODY = json.dumps(
    {
        "error": {
            "message": f"The engine is being stopped. Try again in {_RETRY_AFTER_SECONDS} seconds.",
            "type": "server_error",
            "param": None,
            "code": 503,
        }
    }
).encode()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Notice:
    """The file whose presence says that the server is about to be stopped, in a folder that is ours alone."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="launcher-")
        self.path = Path(self._folder.name) / "draining"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def known_to(self, command: "Command") -> "Command":
        """Return the command of a server that will look for the notice."""
        return replace(command, environment={**command.environment, VARIABLE: str(self.path)})

    def put_up(self) -> None:
        """From here on the server lets nobody new in."""
        self.path.touch()


class Draining:
    """Pure ASGI middleware: 503 for new generations and health checks while the notice is up; all else passes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._path = process_environment().get(VARIABLE, "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; one that is under way never comes here again."""
        if self._path and _is_refusable(scope) and os.path.exists(self._path):  # noqa: ASYNC240, PTH110  (2 µs)
            await _refuse(send)
        else:
            await self._app(scope, receive, send)


def _is_refusable(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    return bool(scope["method"] == "POST" or scope["path"] == "/health")


async def _refuse(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(_BODY)),
        (b"retry-after", b"%d" % _RETRY_AFTER_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})
