"""Who asks: API keys, client addresses behind proxies, and the person behind the chat page."""

from gateway.identity.addresses import Network
from gateway.identity.identity import Identity
from gateway.identity.keys import Keys, KeysError
from gateway.identity.shared_key import SharedKeyError, read_or_make

__all__ = ["Identity", "Keys", "KeysError", "Network", "SharedKeyError", "read_or_make"]
