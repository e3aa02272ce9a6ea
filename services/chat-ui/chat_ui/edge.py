"""What stands between the network and Chainlit: whose pages may call, and what the page may load."""

import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("chat_ui")

IMMUTABLE = "public, max-age=31536000, immutable"
PUBLIC = "public, max-age=3600"

DEFAULT_PORTS = {"http": 80, "https": 443}

# Chainlit would read the whole file before it says no.
UPLOADS = "/project/file"
NO_UPLOADS = "这里只能发送文字。This chat takes text only."


def content_security_policy(script_hashes: list[str]) -> str:
    """Return the policy that keeps every request of the page on its own site."""
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' {' '.join(script_hashes)}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'self'",
        )
    )


class Edge:
    """ASGI wrapper: refuses files and calls from pages of other sites, adds headers that keep the page on its own.

    Chainlit lets any website open its websocket with the visitor's cookies.
    """

    def __init__(self, app: ASGIApp, *, allowed_origins: tuple[str, ...], policy: str) -> None:
        self._app = app
        self._allowed_origins = frozenset(allowed_origins)
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._may_call(headers):
            logger.warning(
                "refused a call from %r to %r: if that is this page's own address, set CHAT_UI_ALLOWED_ORIGINS",
                headers["origin"],
                headers.get("host", ""),
            )
            await _refuse(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == UPLOADS:
            await JSONResponse({"detail": NO_UPLOADS}, 403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(scope["path"], MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _may_call(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is None or origin in self._allowed_origins:
            return True
        # Another port of the same host is another site. The scheme is the browser's: TLS may end before this.
        scheme = origin.partition("://")[0]
        own = {_authority(scheme, headers.get(name, "")) for name in ("host", "x-forwarded-host")}
        return _authority(scheme, origin.partition("://")[2]) in own - {None}

    def _add_headers(self, path: str, headers: MutableHeaders) -> None:
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "same-origin"
        if headers.get("content-type", "").startswith("text/html"):
            headers["content-security-policy"] = self._policy
            headers["cache-control"] = "no-cache"
        elif path.startswith("/assets/"):
            headers["cache-control"] = IMMUTABLE
        elif path.startswith("/public/"):
            headers["cache-control"] = PUBLIC


def _authority(scheme: str, netloc: str) -> tuple[str, int] | None:
    """Return host and port of an address without its scheme; None where it is none."""
    try:
        parts = urlsplit(f"//{netloc}")
        host, port = parts.hostname, parts.port or DEFAULT_PORTS.get(scheme)
    except ValueError:
        return None
    return (host, port) if host and port else None


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    message = "This page belongs to another site. Open the chat at its own address."
    error = {"message": message, "type": "permission_error", "param": None, "code": "foreign_origin"}
    await JSONResponse({"error": error}, 403)(scope, receive, send)
