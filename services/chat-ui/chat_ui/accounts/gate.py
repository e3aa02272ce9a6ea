"""What stands between the edge and Chainlit: who is calling, which cookies count, and how they are set."""

import json
import logging
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chat_ui.accounts.identity import COOKIE, PERSON, Identity, Passes, without_pass
from chat_ui.accounts.throttle import Throttle
from chat_ui.accounts.ways import Caller, Way
from chat_ui.visitor import Network, address_of, is_from_proxy

logger = logging.getLogger("chat_ui")

# A cookie in use is renewed this often, so that it does not end in the middle of somebody's work.
RENEW_SECONDS = 86_400
UNAUTHORIZED = 401
NOBODY = Identity("", "", "")
WRONG_PASSWORDS = "试错次数过多，请稍后再试。 Too many wrong passwords: try again in {seconds} s."


class Gate:
    """ASGI wrapper. Chainlit sees no cookie of a person who may not, or no longer, come in.

    It looks at a cookie's signature alone: whoever was in before a login was asked for would stay in.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        way: Way,
        passes: Passes,
        trusted_proxies: tuple[Network, ...],
        header: str,
        throttle: Throttle,
        base_path: str = "",
    ) -> None:
        self._app = app
        self._way = way
        self._passes = passes
        self._trusted_proxies = trusted_proxies
        self._header = header
        self._throttle = throttle
        self._login = f"{base_path}/login"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = MutableHeaders(scope=scope)
        told = tuple(headers.getlist(self._header)) if self._header else ()
        environ = {"asgi.scope": scope, "HTTP_X_FORWARDED_FOR": ", ".join(headers.getlist("x-forwarded-for"))}
        caller = Caller(address_of(environ, self._trusted_proxies), told)
        secure = _is_secure(scope, headers, trusted=is_from_proxy(environ, self._trusted_proxies))
        page_cookie = self._let_in(headers, caller)
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
        elif scope["path"] == self._login and scope["method"] == "POST":
            await self._log_in(scope, receive, _rewriting(send, secure=secure), caller.address)
        elif not PERSON.get() and not self._way.has_login_page and "text/html" in headers.get("accept", ""):
            await _answer(send, 403, "请从公司的登录入口打开此页。 Open this page at your company's sign-in address.")
        else:
            await self._app(scope, receive, _rewriting(send, secure=secure, page_cookie=page_cookie))

    def _let_in(self, headers: MutableHeaders, caller: Caller) -> str:
        """Leave Chainlit the one cookie that counts, and return the cookie that a page is to set, if any.

        Who comes without one, as a browser that takes no cookies, is a newcomer at every request.
        """
        found = self._passes.read(headers.get("cookie", ""))
        identity = found.identity if found and self._way.accepts(found.identity, caller) else None
        # Chainlit also takes a pass from here, and this page never sends one.
        del headers["authorization"]
        newcomer = None if identity else self._way.newcomer(caller)
        PERSON.set((identity or newcomer or NOBODY).name)
        if found and identity:
            is_old = time.time() - found.made_at > RENEW_SECONDS
            return self._cookie(self._passes.write(identity)) if is_old else ""
        cookies = without_pass(headers.get("cookie", ""))
        if newcomer is None:
            headers["cookie"] = cookies
            return ""
        value = self._passes.write(newcomer)
        headers["cookie"] = "; ".join(filter(None, (cookies, f"{COOKIE}={value}")))
        return self._cookie(value)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send, address: str) -> None:
        """Let Chainlit check a password, unless this address has to wait."""
        if seconds := self._throttle.wait_seconds(address):
            logger.warning("too many wrong passwords from %s: it waits %d s", address, seconds)
            await _answer(send, 429, WRONG_PASSWORDS.format(seconds=seconds), retry_after_seconds=seconds)
            return
        self._throttle.failed(address)

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != UNAUTHORIZED:
                self._throttle.succeeded(address)
            await send(message)

        await self._app(scope, receive, send_and_count)

    def _cookie(self, value: str) -> str:
        return f"{COOKIE}={value}; Max-Age={self._passes.lifetime_seconds}; Path=/"


def _is_secure(scope: Scope, headers: Headers, *, trusted: bool) -> bool:
    """Whether the browser came by TLS; the scheme that addresses are built from follows."""
    if trusted and headers.get("x-forwarded-proto") == "https":
        scope["scheme"] = "wss" if scope["type"] == "websocket" else "https"
    return scope["scheme"] in {"https", "wss"}


def _rewriting(send: Send, *, secure: bool, page_cookie: str = "") -> Send:
    """Return a `send` that sets the cookie with a page and gives every cookie the attributes it should have."""

    async def send_rewritten(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            cookies = headers.getlist("set-cookie")
            if page_cookie and headers.get("content-type", "").startswith("text/html"):
                cookies.append(page_cookie)
            del headers["set-cookie"]
            for cookie in cookies:
                headers.append("set-cookie", _with_attributes(cookie, secure=secure))
        await send(message)

    return send_rewritten


def _with_attributes(cookie: str, *, secure: bool) -> str:
    dropped = {"secure", "httponly", "samesite"}
    parts = [part.strip() for part in cookie.split(";")]
    kept = [parts[0], *(part for part in parts[1:] if part.partition("=")[0].lower() not in dropped)]
    return "; ".join([*kept, "HttpOnly", "SameSite=Lax", *(["Secure"] if secure else [])])


async def _answer(send: Send, status: int, text: str, *, retry_after_seconds: int = 0) -> None:
    headers = [(b"content-type", b"application/json; charset=utf-8"), (b"cache-control", b"no-store")]
    if retry_after_seconds:
        headers.append((b"retry-after", str(retry_after_seconds).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": text}, ensure_ascii=False).encode()})
