"""Addresses to listen on, and why one cannot be had."""

import errno
import socket

from launcher.errors import BadSetting, PortTaken


def listen(host: str, port: int, variable: str, name: str = "") -> socket.socket:
    """A listening socket; raises PortTaken or BadSetting with the port's variable, and what the port is called."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise BadSetting("ENGINE_HOST", f"{host} is no address of this machine") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Linux lets two sockets bind that both may reuse an address; only a listener shuts the other out.
        bound.listen()
    except OSError as error:
        bound.close()
        raise _explained(error, host, port, variable, name or f"{variable}={port}") from error
    return bound


def _explained(error: OSError, host: str, port: int, variable: str, name: str) -> Exception:
    if isinstance(error, PermissionError):
        return BadSetting(variable, f"{port} needs root; use one above 1023")
    if error.errno == errno.EADDRNOTAVAIL:
        return BadSetting("ENGINE_HOST", f"{host} is no address of this machine")
    return PortTaken(f"{name} on {host} is taken by another process; stop it or set another {variable}")
