"""The addresses that the system's name service gives a name now."""

import asyncio
import re
import socket

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>.*)\]|(?P<name>[^:]*))(?::(?P<port>[0-9]+))?")


def host_and_port(name: str, default_port: int) -> tuple[str, int]:
    """Split `host`, `host:port`, `[address]` or `[address]:port`."""
    found = _HOST_AND_PORT.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} is neither host:port nor [address]:port")
    return found["ipv6"] or found["name"], int(found["port"] or default_port)


async def addresses_of(host: str, port: int, *, ipv6: bool, timeout_seconds: float) -> set[str] | None:
    """Return a name's IPv4 addresses, or with `ipv6`, where it has none, its IPv6 ones; None if it cannot be asked now.

    Never both: a host that has one of each would be taken for two.
    """
    family = socket.AF_UNSPEC if ipv6 else socket.AF_INET
    try:
        async with asyncio.timeout(timeout_seconds):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return None
    by_family: dict[int, set[str]] = {socket.AF_INET: set(), socket.AF_INET6: set()}
    for kind, _, _, _, address in found:
        # An address with a zone is good on one link of this host only, and cannot be written in a URL.
        if kind in by_family and "%" not in str(address[0]):
            by_family[kind].add(str(address[0]))
    return by_family[socket.AF_INET] or by_family[socket.AF_INET6]


def base_url(address: str, port: int) -> str:
    """Return the base URL of a service at an address."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
