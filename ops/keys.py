"""`make key`: a new API key in the gateway's file of keys, where only its hash is kept."""

import hashlib
import os
import re
import secrets
from pathlib import Path

from ops.errors import StackError
from ops.settings import BAD_SETTING, Settings

# Inside the containers, too: compose mounts this folder.
DEFAULT_FILE = "keys/api-keys"
SETTING = "GATEWAY_API_KEYS_FILE"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
# The gateway's container reads it as another user; what it holds cannot be turned into a key.
_MODE = 0o644
_HEAD = """\
# API keys of the gateway, by their SHA-256; read again when this file changes. Delete a line to withdraw a key.
#   tier NAME requests=600/minute tokens=off streams=32    what a tier does not name is as for everybody
"""


def keys_file(settings: Settings) -> Path:
    """Return where the keys are, or would be if they were on; a relative path starts at the project's folder."""
    return settings.root / (settings.environment.get(SETTING, "") or DEFAULT_FILE)


def add_key(file: Path, name: str, tier: str) -> str:
    """Append a new key's hash and return the key, which is nowhere else; raises `StackError` for a bad name."""
    for word in (name, tier):
        if not _NAME.fullmatch(word):
            raise StackError(f"{word!r} is no name for a key or a tier: use letters, digits and . _ @ -", BAD_SETTING)
    known = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if any(line.split()[:2] == ["key", name] for line in known):
        raise StackError(f"{file} has a key named {name} already: delete its line first, or take another name.")
    if tier != "default" and not any(line.split()[:2] == ["tier", tier] for line in known):
        raise StackError(f"{file} has no tier {tier}: add a line 'tier {tier} requests=600/minute' first.")
    key = f"sk-{secrets.token_urlsafe(_RANDOM_BYTES)}"
    _append(file, f"key {name} {tier} sha256:{hashlib.sha256(key.encode()).hexdigest()}\n")
    return key


def _append(file: Path, line: str) -> None:
    """Write the file anew and put it in the old one's place: a gateway never reads half a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = file.read_text(encoding="utf-8") if file.exists() else _HEAD
    if text and not text.endswith("\n"):
        text += "\n"
    new = file.with_name(f".{file.name}.new")
    new.write_text(text + line, encoding="utf-8")
    new.chmod(_MODE)
    os.replace(new, file)  # noqa: PTH105  (the name says what it does)
