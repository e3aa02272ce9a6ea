"""Whose word on a browser's address is taken."""

import ipaddress
from typing import Any

import pytest
from chat_ui.visitor import address_of

TRUSTED = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("fd00::/8"))


def environ(peer: str | None, told: str | None = None) -> dict[str, Any]:
    return {
        "REMOTE_ADDR": "127.0.0.1",  # what Engine.IO writes, whoever calls
        "asgi.scope": {"client": peer and (peer, 40000)},
        **({} if told is None else {"HTTP_X_FORWARDED_FOR": told}),
    }


@pytest.mark.parametrize(
    ("peer", "told", "address"),
    [
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("fd00::2", "2001:db8::7", "2001:db8::7"),
        ("127.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1", None, "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "somebody\r\nx: y", "127.0.0.1"),
        ("203.0.113.9", "203.0.113.7", "203.0.113.9"),
        ("2001:db8::9", "203.0.113.7", "2001:db8::9"),
        (None, "203.0.113.7", ""),
    ],
)
def test_only_nginx_is_believed(peer: str | None, told: str | None, address: str) -> None:
    assert address_of(environ(peer, told), TRUSTED) == address


def test_an_environ_that_tells_nothing_gives_nothing() -> None:
    assert address_of({}, TRUSTED) == ""
