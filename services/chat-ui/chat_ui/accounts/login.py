"""How people come in, by the settings: made before Chainlit is imported, hung into it afterwards."""

from dataclasses import dataclass
from pathlib import Path

from chat_ui.accounts.errors import LoginError
from chat_ui.accounts.identity import Passes
from chat_ui.accounts.oauth import read_providers
from chat_ui.accounts.passwords import PasswordFile
from chat_ui.accounts.secret import load_secret
from chat_ui.accounts.ways import Guests, HeaderLogin, OAuthLogin, PasswordLogin, Way
from chat_ui.settings import Settings

# A company's week of holidays does not ask for the password again.
SESSION_DAYS = 15.0


@dataclass(frozen=True, slots=True)
class Login:
    """The way in, its passes, and what Chainlit has to find in the environment for it."""

    way: Way
    passes: Passes
    variables: dict[str, str]
    header: str = ""


def set_up_login(settings: Settings, folder: Path) -> Login | None:
    """Return how people come in, None where nobody is told from anybody; raises `LoginError`."""
    if settings.login == "none" and not settings.keeps_history:
        return None
    way, variables = _way(settings)
    days = settings.guest_days if isinstance(way, Guests) else SESSION_DAYS
    secret = load_secret(settings.secret_file, folder)
    # The second makes Chainlit ask for a pass although it has no login page of its own.
    variables |= {"CHAINLIT_AUTH_SECRET": secret, "CHAINLIT_CUSTOM_AUTH": "1"}
    return Login(way, Passes(secret, days), variables, settings.login_header if settings.login == "header" else "")


def _way(settings: Settings) -> tuple[Way, dict[str, str]]:
    if settings.login == "password":
        if not settings.accounts_file:
            raise LoginError("CHAT_UI_LOGIN=password needs CHAT_UI_ACCOUNTS_FILE. Make it with make account NAME=...")
        file = PasswordFile(settings.accounts_file)
        file.load()
        return PasswordLogin(file), {}
    if settings.login == "header":
        if not settings.login_proxies:
            raise LoginError("CHAT_UI_LOGIN=header needs CHAT_UI_LOGIN_PROXIES: the addresses of the proxy to believe")
        return HeaderLogin(settings.login_proxies), {}
    if settings.login == "oauth":
        if not settings.oauth_file:
            raise LoginError(
                "CHAT_UI_LOGIN=oauth needs CHAT_UI_OAUTH_FILE, with lines such as OAUTH_GITHUB_CLIENT_ID=..."
            )
        return OAuthLogin(settings.oauth_allowed), read_providers(settings.oauth_file)
    return Guests(), {}
