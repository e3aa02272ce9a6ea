"""The secret that signs cookies: the operator's, or made at the first start and kept beside the conversations."""

import logging
import secrets
from pathlib import Path

from chat_ui.accounts.errors import LoginError

logger = logging.getLogger("chat_ui")

RANDOM_BYTES = 48
LEAST_CHARACTERS = 32


def load_secret(given: str, folder: Path) -> str:
    """Return the secret in the operator's file, or that in `folder`, made now if there is none. Never logged.

    Raises `LoginError` for an operator's file that cannot serve. A folder that cannot be written costs no start: then
    cookies last as long as the process.
    """
    if given:
        return _read_given(Path(given))
    file = folder / "cookie-secret"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            _write_new(file)
        secret = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        logger.warning("people are forgotten when this process ends: %s: %s", file, error)
        return secrets.token_urlsafe(RANDOM_BYTES)
    if len(secret) < LEAST_CHARACTERS:
        logger.warning("people are forgotten when this process ends: %s is too short; delete it for a new one", file)
        return secrets.token_urlsafe(RANDOM_BYTES)
    return secret


def _read_given(file: Path) -> str:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise LoginError(f"CHAT_UI_SECRET_FILE={file}: {error}") from error
    if len(secret) < LEAST_CHARACTERS:
        raise LoginError(f"CHAT_UI_SECRET_FILE={file}: needs at least {LEAST_CHARACTERS} characters")
    return secret


def _write_new(file: Path) -> None:
    """Write whole or not at all, so that a second process never reads half a secret."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    new.touch(mode=0o600)
    new.write_text(secrets.token_urlsafe(RANDOM_BYTES) + "\n", encoding="ascii")
    try:
        # Unlike a rename this keeps the one that another process has just made.
        file.hardlink_to(new)
    except FileExistsError:
        pass
    finally:
        new.unlink()
