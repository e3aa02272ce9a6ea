"""The key that only chat-ui has: made at the first start, kept in a file that both can read, never printed."""

import os
import secrets
from pathlib import Path

_RANDOM_BYTES = 32
# The owner alone: both services run as the same user, natively and in their images.
_MODE = 0o600
_MIN_CHARACTERS = 32


class SharedKeyError(Exception):
    """The key can be neither read nor made; the message is one line."""


def read_or_make(path: Path) -> bytes:
    """Return the key in a file, made if there is none; several that start at once agree on one."""
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes().strip()
    except OSError as error:
        raise SharedKeyError(f"{path} can be neither read nor made: {error.strerror}.") from None
    if len(key) < _MIN_CHARACTERS:
        raise SharedKeyError(f"{path} holds no key. Delete it, and a new one is made.")
    return key


def _make(path: Path) -> None:
    """Put a new key in place, complete or not at all; leave one that somebody else has just put there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_RANDOM_BYTES) + "\n")
        try:
            path.hardlink_to(new)
        except FileExistsError:
            return
    finally:
        new.unlink()
