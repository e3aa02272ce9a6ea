"""What stands between the network and Chainlit: whose pages may call, and what the page may load."""

import json
import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("chat_ui")

IMMUTABLE = "public, max-age=31536000, immutable"
PUBLIC = "public, max-age=3600"


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
    """ASGI wrapper: refuses calls from pages of other sites, adds headers that keep the page on its own.

    Chainlit lets any website open its websocket with the visitor's cookies.
    """

    def __init__(self, app: ASGIApp, *, base_path: str, allowed_origins: tuple[str, ...], policy: str) -> None:
        self._app = app
        self._assets, self._public = f"{base_path}/assets/", f"{base_path}/public/"
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
            await _refuse(scope, send)
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
        # The port is left out: a proxy that drops it from Host is common, and cookies do not tell ports apart either.
        own = {_hostname(f"//{headers.get(name, '')}") for name in ("host", "x-forwarded-host")}
        return _hostname(origin) in own - {None}

    def _add_headers(self, path: str, headers: MutableHeaders) -> None:
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "same-origin"
        if headers.get("content-type", "").startswith("text/html"):
            headers["content-security-policy"] = self._policy
            headers["cache-control"] = "no-cache"
        elif path.startswith(self._assets):
            headers["cache-control"] = IMMUTABLE
        elif path.startswith(self._public):
            headers["cache-control"] = PUBLIC


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    message = "This page belongs to another site. Open the chat at its own address."
    error = {"message": message, "type": "permission_error", "param": None, "code": "foreign_origin"}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})
