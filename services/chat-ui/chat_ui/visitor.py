"""Where the person at a page comes from, by the word of nginx alone: anybody else's is a stranger's."""

import ipaddress
from collections.abc import Mapping
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def address_of(environ: Mapping[str, Any], trusted: tuple[Network, ...]) -> str:
    """Return the address of the browser behind a websocket's environ; empty where nothing tells it.

    Engine.IO writes 127.0.0.1 into every REMOTE_ADDR; the peer of the connection is in the ASGI scope.
    """
    peer = _peer(environ)
    if peer is None or not _is_in(peer, trusted):
        return str(peer or "")
    # nginx writes the one address it saw over whatever came; a proxy that appends has written the last.
    told = _parse(str(environ.get("HTTP_X_FORWARDED_FOR", "")).rpartition(",")[2].strip())
    return str(told or peer)


def is_from_proxy(environ: Mapping[str, Any], trusted: tuple[Network, ...]) -> bool:
    """Whether it is nginx that speaks, so that its headers are its own."""
    peer = _peer(environ)
    return peer is not None and _is_in(peer, trusted)


def _peer(environ: Mapping[str, Any]) -> Address | None:
    client = environ.get("asgi.scope", {}).get("client")
    return _parse(client[0]) if client else None


def _parse(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
