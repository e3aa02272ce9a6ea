"""The login as Chainlit calls it. Import it only with the login's variables in the environment."""

from typing import Any

import chainlit as cl
from chainlit.oauth_providers import providers

from chat_ui.accounts.errors import LoginError
from chat_ui.accounts.identity import Identity
from chat_ui.accounts.login import Login
from chat_ui.accounts.ways import OAuthLogin, PasswordLogin


def register(login: Login) -> None:
    """Hang a way that has a login page into Chainlit; raises `LoginError` if a provider is not set up whole."""
    way = login.way
    if isinstance(way, PasswordLogin):

        async def check_password(name: str, password: str) -> cl.User | None:
            return _user(await way.log_in(name.strip(), password))

        cl.password_auth_callback(check_password)
    elif isinstance(way, OAuthLogin):
        _check_providers(login.variables)

        async def nobody(*_: Any) -> None:
            """Chainlit offers providers only where this is set; who comes back from one is met before Chainlit."""

        cl.oauth_callback(nobody)


def _check_providers(variables: dict[str, str]) -> None:
    """Raise `LoginError` with the first line that is missing; Chainlit leaves out such a provider in silence."""
    found = False
    for provider in providers:
        missing = [name for name in provider.env if not variables.get(name)]
        if missing and len(missing) < len(provider.env):
            raise LoginError(f"CHAT_UI_OAUTH_FILE has no line {missing[0]}=..., which {provider.id} needs")
        found = found or not missing
    if not found:
        raise LoginError("CHAT_UI_OAUTH_FILE sets up no provider: OAUTH_GITHUB_CLIENT_ID=... and so on")


def _user(identity: Identity | None) -> cl.User | None:
    if identity is None:
        return None
    return cl.User(
        identifier=identity.name,
        display_name=identity.shown,
        metadata={"kind": identity.kind, "proof": identity.proof},
    )
