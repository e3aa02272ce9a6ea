"""The login as Chainlit calls it. Import it only with the login's variables in the environment."""

from typing import Any

import chainlit as cl
from chainlit.oauth_providers import get_configured_oauth_providers

from chat_ui.accounts.errors import LoginError
from chat_ui.accounts.identity import Identity
from chat_ui.accounts.ways import OAuthLogin, PasswordLogin, Way


def register(way: Way) -> None:
    """Hang a way that has a login page into Chainlit; raises `LoginError` if no provider is set up whole."""
    if isinstance(way, PasswordLogin):

        async def check_password(name: str, password: str) -> cl.User | None:
            return _user(await way.log_in(name.strip(), password))

        cl.password_auth_callback(check_password)
    elif isinstance(way, OAuthLogin):
        if not get_configured_oauth_providers():
            raise LoginError("CHAT_UI_OAUTH_FILE sets up no provider whole: each needs its client id and secret")

        async def welcome(
            provider: str, _token: str, _raw: dict[str, str], user: cl.User, _id: Any = None
        ) -> cl.User | None:
            return _user(way.log_in(provider, user.identifier))

        cl.oauth_callback(welcome)


def _user(identity: Identity | None) -> cl.User | None:
    if identity is None:
        return None
    return cl.User(
        identifier=identity.name,
        display_name=identity.shown,
        metadata={"kind": identity.kind, "proof": identity.proof},
    )
