"""Addresses of clients: what a hop says of the one before it, and what a client is counted by.

Whatever stands in a header is a stranger's text: it is either an address or nothing, and reading it costs a bounded
time.
"""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A peer without an address: a Unix socket.
UNKNOWN = "unknown"
# More proxies in a row than anybody has; further hops are not looked at.
MAX_HOPS = 16
# The longest IPv6 address with brackets, quotes, a zone and a port is well below.
MAX_TEXT = 96
# So many hops of that length fit, with what `Forwarded` says besides.
_MAX_TAIL = MAX_HOPS * 2 * MAX_TEXT
_CUT_OFF = "…"
_REMEMBERED = 4096
# RFC 6052: what a NAT64 puts IPv4 addresses into.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV6_PREFIX = 64
_LOWER_BITS = 64
_IPV4_BITS = 0xFFFF_FFFF
_PORT = re.compile(r":[0-9]{1,5}")
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*(?:"([^"\\]*)"|([^\s;,"]*))\s*(?:;|$)', re.IGNORECASE)


def parse_address(text: str) -> Address | None:
    """Return the address in a hop's text, with or without port, brackets and zone; None if there is none.

    Addresses that only carry an IPv4 address (mapped, NAT64) are that one.
    """
    text = text.strip()
    if not text or len(text) > MAX_TEXT:
        return None
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or ":" not in text or (port and not _PORT.fullmatch(port)):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _PORT.fullmatch(f":{port}"):
            return None
    try:
        address = ipaddress.ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    return address if isinstance(address, ipaddress.IPv4Address) else _without_wrapping(address)


def name_of(address: Address) -> str:
    """Return what a client of that address is counted by: an IPv4 address, or the /64 that an IPv6 client has."""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    prefix = ipaddress.IPv6Address(int(address) >> _LOWER_BITS << _LOWER_BITS)
    return f"{prefix}/{_IPV6_PREFIX}"


def hops_of(headers: list[tuple[bytes, bytes]]) -> Iterator[str]:
    """Give what the headers say of the hops before the peer, the nearest first, each as its proxy wrote it.

    `Forwarded` is read where there is no `X-Forwarded-For`. Of endless lists only the near end is read.
    """
    values = [value for name, value in headers if name == b"x-forwarded-for"]
    if values:
        yield from _elements(values)
        return
    for element in _elements([value for name, value in headers if name == b"forwarded"]):
        found = _FOR.search(element)
        yield (found[1] or found[2] or "") if found else ""


def _elements(values: list[bytes]) -> Iterator[str]:
    """Give the elements of comma-separated lists from the end."""
    left = MAX_HOPS
    for value in reversed(values):
        tail = value[-_MAX_TAIL:].decode("latin-1")
        if len(value) > _MAX_TAIL:
            # The rest of an address could be another's.
            tail = f"{_CUT_OFF}{tail}"
        for element in tail.rsplit(",", left)[: -left - 1 : -1]:
            yield element
            left -= 1
        if left <= 0:
            return


def _without_wrapping(address: ipaddress.IPv6Address) -> Address:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & _IPV4_BITS)
    return address


class Clients:
    """Tells the client's address from its peer's and the headers; proxies that are trusted are no clients."""

    def __init__(self, trusted: tuple[Network, ...]) -> None:
        self._trusted = trusted
        # Most requests come by the same few texts; hostile ones push each other out.
        self._read = lru_cache(maxsize=_REMEMBERED)(self._read_anew)

    def name(self, peer: str, headers: list[tuple[bytes, bytes]]) -> str:
        """Return what the client is counted by: the nearest hop that is no trusted proxy.

        Junk ends the way: the hop before it counts. If all hops are trusted, the farthest one is the client.
        """
        name, trusted = self._read(peer) or (UNKNOWN, False)
        if not trusted:
            return name
        for hop in hops_of(headers):
            read = self._read(hop) if len(hop) <= MAX_TEXT else None
            if read is None:
                break
            name, trusted = read
            if not trusted:
                break
        return name

    def name_in(self, text: str) -> str | None:
        """Return what a client of the address in a text is counted by, None if it is no address."""
        read = self._read(text) if len(text) <= MAX_TEXT else None
        return read[0] if read else None

    def _read_anew(self, text: str) -> tuple[str, bool] | None:
        address = parse_address(text)
        if address is None:
            return None
        trusted = any(address.version == network.version and address in network for network in self._trusted)
        return name_of(address), trusted
