"""One JSON line for each request that vLLM serves, under the ids by which the gateway and nginx log it.

Runs inside vLLM (`--middleware`), whose own access log has no ids. No body and no query is ever logged.
"""

import json
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

MIDDLEWARE = f"{__name__}.RequestLog"
_QUIET = frozenset({"/health", "/metrics", "/ping"})
_IDS = {b"x-gateway-request-id": "request_id", b"x-request-id": "engine_request_id"}
_SHOWN_CHARACTERS = 128

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RequestLog:
    """Pure ASGI middleware: a line when a request is over, however it ends; none for probes."""

    def __init__(self, app: App, write: Callable[[bytes], object] | None = None) -> None:
        self._app = app
        self._write = write or _write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in _QUIET:
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status, is_complete = 0, False

        async def note(message: Message) -> None:
            nonlocal status, is_complete
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                is_complete = not message.get("more_body", False)

        try:
            await self._app(scope, receive, note)
        finally:
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "service": "vllm",
                **_ids(scope["headers"]),
                "method": scope["method"][:_SHOWN_CHARACTERS],
                "path": scope["path"][:_SHOWN_CHARACTERS],
                "status": status,
                "duration_ms": round((time.perf_counter() - began) * 1000, 2),
                "completed": is_complete,
            }
            self._write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def _ids(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {_IDS[name]: value.decode("latin-1")[:_SHOWN_CHARACTERS] for name, value in headers if name in _IDS}


def _write(line: bytes) -> None:
    # vLLM puts the name of the process before whatever is written through sys.stdout: that would be no JSON.
    os.write(1, line)
