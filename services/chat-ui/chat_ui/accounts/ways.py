"""The ways to come in. Each says whose cookie still counts, and who gets one without a login page."""

import ipaddress
import secrets
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

from chat_ui.accounts.identity import Identity
from chat_ui.accounts.passwords import PasswordFile
from chat_ui.visitor import Network

GUEST = "guest"
GUESTS = f"{GUEST}:"
NAME_CHARACTERS = 254


@dataclass(frozen=True, slots=True)
class Caller:
    """A request as the way in sees it: the address that nginx saw, and the values of the proxy's header."""

    address: str
    told: tuple[str, ...] = ()


class Way(Protocol):
    """One way to come in."""

    # Whether whoever has no cookie sees a login page; otherwise `newcomer` decides.
    has_login_page: bool

    def accepts(self, identity: Identity, caller: Caller) -> bool:
        """Whether the cookie of this person still counts."""

    def newcomer(self, caller: Caller) -> Identity | None:
        """Return who comes without a cookie, None where nobody can tell."""


class Guests:
    """Nobody logs in: each browser is a guest of its own, known by its cookie alone."""

    has_login_page = False

    def accepts(self, identity: Identity, caller: Caller) -> bool:
        """Take any guest's."""
        del caller
        return identity.kind == GUEST

    def newcomer(self, caller: Caller) -> Identity:
        """Return a guest who was never here."""
        del caller
        return Identity(f"{GUESTS}{secrets.token_hex(16)}", GUEST, "访客 Guest")


class HeaderLogin:
    """A company's proxy names the person in a header of every request, and is alone believed."""

    kind = "header"
    has_login_page = False

    def __init__(self, proxies: tuple[Network, ...]) -> None:
        self._proxies = proxies

    def accepts(self, identity: Identity, caller: Caller) -> bool:
        """Take a cookie only together with the header that it was made for: another person may sit there now."""
        told = self._told(caller)
        return identity.kind == self.kind and bool(told) and identity.shown == told

    def newcomer(self, caller: Caller) -> Identity | None:
        """Return the person whom the proxy names."""
        told = self._told(caller)
        return Identity(f"{self.kind}:{told}", self.kind, told) if told else None

    def _told(self, caller: Caller) -> str:
        """Return the one name told by a proxy; a header that comes twice may be half somebody else's."""
        if len(caller.told) != 1 or not self._is_proxy(caller.address):
            return ""
        name = unquote(caller.told[0]).strip()
        return name if name.isprintable() and len(name) <= NAME_CHARACTERS else ""

    def _is_proxy(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)


class PasswordLogin:
    """Accounts in a file."""

    kind = "account"
    has_login_page = True

    def __init__(self, file: PasswordFile) -> None:
        self._file = file

    def accepts(self, identity: Identity, caller: Caller) -> bool:
        """Take the cookie of an account that is still there, with the password it had then."""
        del caller
        return (
            identity.kind == self.kind and bool(identity.proof) and identity.proof == self._file.stamp(identity.shown)
        )

    def newcomer(self, caller: Caller) -> None:
        """Return nobody: there is a login page."""
        del caller

    async def log_in(self, name: str, password: str) -> Identity | None:
        """Return the account if the password is right."""
        stamp = await self._file.check(name, password)
        return Identity(f"{self.kind}:{name}", self.kind, name, stamp) if stamp else None


class OAuthLogin:
    """A provider vouches for the person; `allowed` names who may come in, everybody there if it is empty."""

    kind = "oauth"
    has_login_page = True

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)

    def accepts(self, identity: Identity, caller: Caller) -> bool:
        """Take the cookie of who may still come in."""
        del caller
        return identity.kind == self.kind and self._may_enter(identity.name.partition(":")[2])

    def newcomer(self, caller: Caller) -> None:
        """Return nobody: there is a login page."""
        del caller

    def log_in(self, provider: str, name: str) -> Identity | None:
        """Return the person whom a provider names, if they may come in."""
        return Identity(f"{provider}:{name}", self.kind, name) if self._may_enter(name) else None

    def _may_enter(self, name: str) -> bool:
        user, at, domain = name.lower().rpartition("@")
        return not self._allowed or name.lower() in self._allowed or (bool(user) and f"{at}{domain}" in self._allowed)
