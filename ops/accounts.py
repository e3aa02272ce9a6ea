"""`make account`: a person who may log in to the chat page, in a file that holds only the password's hash."""

import base64
import hashlib
import os
import re
import secrets
from pathlib import Path

from ops.errors import StackError
from ops.settings import BAD_SETTING, Settings

# Inside the container, too: compose mounts this folder.
DEFAULT_FILE = "accounts/people"
SETTING = "CHAT_UI_ACCOUNTS_FILE"
LEAST_CHARACTERS = 8
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
# OWASP's second choice of scrypt's parameters: log2 of N, r, p. 32 MiB and about 0.2 s for each try.
_PARAMETERS = (15, 8, 3)
_MEMORY_BYTES = 64 * 1024 * 1024
_SALT_BYTES = 16
# The page's container reads it as another user; keep the folder from people who have no business on this machine.
_MODE = 0o644
_HEAD = "# Accounts of the chat page; read again when this file changes. Delete a line to end an account.\n"


def accounts_file(settings: Settings) -> Path:
    """Return where the accounts are, or would be if they were on; a relative path starts at the project's folder."""
    return settings.root / (settings.environment.get(SETTING, "") or DEFAULT_FILE)


def set_password(file: Path, name: str, password: str) -> bool:
    """Add an account, or give one another password, and tell whether it is new; raises `StackError`."""
    if not _NAME.fullmatch(name):
        raise StackError(f"{name!r} is no name for an account: use letters, digits and . _ @ -", BAD_SETTING)
    if len(password) < LEAST_CHARACTERS:
        raise StackError(f"The password needs at least {LEAST_CHARACTERS} characters.", BAD_SETTING)
    text = file.read_text(encoding="utf-8") if file.exists() else _HEAD
    lines = text.splitlines()
    kept = [line for line in lines if line.partition(" ")[0] != name]
    _replace(file, "\n".join([*kept, f"{name} {_hash(password)}"]) + "\n")
    return len(kept) == len(lines)


def _hash(password: str) -> str:
    salt = secrets.token_bytes(_SALT_BYTES)
    log2_n, r, p = _PARAMETERS
    digest = hashlib.scrypt(password.encode(), salt=salt, n=1 << log2_n, r=r, p=p, maxmem=_MEMORY_BYTES, dklen=32)
    numbers = ":".join(str(number) for number in _PARAMETERS)
    return f"scrypt:{numbers}:{base64.b64encode(salt).decode()}:{base64.b64encode(digest).decode()}"


def _replace(file: Path, text: str) -> None:
    """Put a new file in the old one's place: a page never reads half a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    new.write_text(text, encoding="utf-8")
    new.chmod(_MODE)
    os.replace(new, file)  # noqa: PTH105  (the name says what it does)
