"""Who asks: a key's holder, or whoever has the address that the request came from."""

import hmac

from starlette.types import Scope

from gateway.errors import Unauthorized
from gateway.identity.addresses import UNKNOWN, Clients, Network
from gateway.identity.keys import Keys
from gateway.rates import Allowance
from gateway.schemas import Client

# What chat-ui says of the person whose question it passes on; believed with chat-ui's own key only.
END_USER_HEADER = b"x-end-user-address"
_BEARER = b"bearer "
_MAX_KEY_BYTES = 1024


class Identity:
    """Tells the clients apart; `keys` is None where keys are off, `chat_ui_key` where there is no chat page."""

    def __init__(
        self,
        trusted: tuple[Network, ...],
        allowance: Allowance,
        *,
        keys: Keys | None,
        chat_ui_key: bytes | None,
        anonymous: bool,
    ) -> None:
        self._addresses = Clients(trusted)
        self._allowance = allowance
        self._keys = keys
        self._chat_ui_key = chat_ui_key
        self._anonymous = anonymous

    def client_of(self, scope: Scope) -> Client:
        """Return who asks; raise Unauthorized for a key that is wrong, or missing where one is needed."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        key = _key_in(headers)
        if key is not None and self._chat_ui_key is not None and hmac.compare_digest(key, self._chat_ui_key):
            return Client(self._end_user(scope), self._allowance)
        if self._keys is None:
            # The OpenAI SDKs send a key whether one is needed or not.
            return Client(self._address(scope), self._allowance)
        if key is None and self._anonymous:
            return Client(self._address(scope), self._allowance)
        holder = self._keys.holder_of(key) if key else None
        if holder is None:
            raise Unauthorized(is_missing=key is None)
        return Client(f"key:{holder.name}", holder.allowance)

    def _address(self, scope: Scope) -> str:
        peer = scope.get("client")
        return self._addresses.name(peer[0] if peer else UNKNOWN, scope["headers"])

    def _end_user(self, scope: Scope) -> str:
        """Return the person at chat-ui; one whose address it does not tell counts as chat-ui itself."""
        told = next((value for name, value in scope["headers"] if name == END_USER_HEADER), b"")
        return self._addresses.name_in(told.decode("latin-1")) or self._address(scope)


def _key_in(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip()[:_MAX_KEY_BYTES] or None
    return None
