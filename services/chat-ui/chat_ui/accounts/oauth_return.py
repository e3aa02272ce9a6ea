"""The way back from an OAuth provider. Import it only with the login's variables in the environment.

Chainlit's own handler leads below no base path, says the same of every failure, and takes an address that the provider
has not verified.
"""

import asyncio
import hmac
import json
import logging
import re
from dataclasses import dataclass
from typing import Any

import httpx
from chainlit.oauth_providers import OAuthProvider, get_oauth_provider
from fastapi import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chat_ui.accounts.identity import COOKIE, Identity, Passes
from chat_ui.accounts.ways import OAuthLogin

logger = logging.getLogger("chat_ui")

CALLBACK = re.compile(r"/auth/oauth/(?P<provider>[^/]+)/callback")
# Chainlit sets it when it sends somebody to a provider, for three minutes.
STATE_COOKIE = "oauth_state"
EXCHANGE_SECONDS = 20.0
LOGGED_CHARACTERS = 200

# What Chainlit's providers raise over an answer that is not what they expect.
NOT_AS_EXPECTED = (ValueError, LookupError, TypeError, AttributeError)


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 - no error of this page
    """Why nobody comes in: `code` is a key of auth.login.errors in the translations, `reason` is for the log."""

    code: str
    reason: str


class OAuthReturn:
    """ASGI wrapper that answers the provider's callback; everything else goes on to Chainlit."""

    def __init__(self, app: ASGIApp, *, way: OAuthLogin, passes: Passes, base_path: str) -> None:
        self._app = app
        self._way = way
        self._passes = passes
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        is_get = scope["type"] == "http" and scope["method"] == "GET"
        found = CALLBACK.fullmatch(scope["path"].removeprefix(self._base_path)) if is_get else None
        if found is None:
            await self._app(scope, receive, send)
            return
        try:
            identity = await self._find_person(found["provider"], Request(scope))
        except Refusal as refusal:
            logger.warning("login by %s failed: %s", _short(found["provider"]), refusal.reason)
            response = RedirectResponse(f"{self._base_path}/login?error={refusal.code}", 302)
        else:
            response = RedirectResponse(f"{self._base_path}/", 302)
            response.set_cookie(COOKIE, self._passes.write(identity), max_age=self._passes.lifetime_seconds)
        response.delete_cookie(STATE_COOKIE)
        response.headers["cache-control"] = "no-store"
        await response(scope, receive, send)

    async def _find_person(self, provider_id: str, request: Request) -> Identity:
        """Return whom the provider vouches for; raises `Refusal`."""
        provider = get_oauth_provider(provider_id)
        if provider is None or not provider.is_configured():
            raise Refusal("oauthProvider", "it is not set up in CHAT_UI_OAUTH_FILE")
        told = request.query_params
        if error := told.get("error"):
            code = "oauthDenied" if error == "access_denied" else "oauthProvider"
            raise Refusal(code, f"the provider says {_short(error)}: {_short(told.get('error_description', ''))}")
        state, expected = told.get("state", ""), request.cookies.get(STATE_COOKIE, "")
        if not expected or not hmac.compare_digest(state.encode(), expected.encode()):
            raise Refusal("oauthExpired", "it was not begun in this browser within three minutes")
        name, claims = await _exchange(provider, told.get("code", ""), str(request.url.replace(query="", fragment="")))
        if "@" in name and _is_unverified(claims):
            raise Refusal("oauthNotAllowed", f"the provider has not verified the address {_short(name)}")
        identity = self._way.log_in(provider.id, name)
        if identity is None:
            raise Refusal("oauthNotAllowed", f"CHAT_UI_OAUTH_ALLOWED does not name {_short(name)}")
        return identity


async def _exchange(provider: OAuthProvider, code: str, address: str) -> tuple[str, dict[str, Any]]:
    """Return the person's name and what else the provider tells, for the code it gave the browser."""
    try:
        async with asyncio.timeout(EXCHANGE_SECONDS):
            token = await provider.get_token(code, address)
            claims, user = await provider.get_user_info(token)
    except httpx.HTTPStatusError as error:
        raise Refusal("oauthProvider", _told_by(error.response)) from error
    except (httpx.HTTPError, TimeoutError) as error:
        raise Refusal("oauthProvider", f"no answer: {_short(str(error) or type(error).__name__)}") from error
    except HTTPException as error:
        raise Refusal("oauthProvider", _short(str(error.detail))) from error
    except NOT_AS_EXPECTED as error:
        raise Refusal("oauthProvider", f"its answer names nobody: {_short(str(error))}") from error
    if not user.identifier.strip():
        raise Refusal("oauthProvider", "its answer names nobody")
    return user.identifier.strip(), claims


def _told_by(response: httpx.Response) -> str:
    """Return what a refusing answer says: its address without the query, its status and the error's name."""
    try:
        error = _short(json.loads(response.text)["error"])
    except NOT_AS_EXPECTED:
        error = "no reason"
    return f"{response.url.copy_with(query=None)} answers {response.status_code}, {error}"


def _is_unverified(claims: dict[str, Any]) -> bool:
    """Whether the provider says that the address may be somebody else's; some write it as a word."""
    return any(str(claims.get(name)).lower() == "false" for name in ("email_verified", "verified_email"))


def _short(text: Any) -> str:
    """Return foreign text as one short line."""
    return repr(str(text)[:LOGGED_CHARACTERS])
