"""A checkpoint's text files, read as strictly as vLLM reads them."""

import json
from pathlib import Path
from typing import Any

from launcher.errors import BrokenCheckpoint

FETCH_AGAIN = "Delete it and fetch it again"
LFS_POINTER = b"version https://git-lfs"


def read_text(path: Path) -> str:
    """A file that must be UTF-8. Raises BrokenCheckpoint, OSError."""
    data = path.read_bytes()
    if data.startswith(LFS_POINTER):
        raise BrokenCheckpoint(f"{path} is a Git LFS pointer of a few bytes, not the file itself", FETCH_AGAIN)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BrokenCheckpoint(f"{path} is not UTF-8 (byte {error.start})", FETCH_AGAIN) from error


def read_object(path: Path) -> dict[str, Any]:
    """A file that must be a JSON object. Raises BrokenCheckpoint, OSError."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BrokenCheckpoint(f"{path} is not JSON: {error}", FETCH_AGAIN) from error
    if not isinstance(value, dict):
        raise BrokenCheckpoint(f"{path} is not a JSON object", FETCH_AGAIN)
    return value


def read_optional(path: Path) -> dict[str, Any]:
    """The same for a file that may be absent: an empty object then."""
    return read_object(path) if path.is_file() else {}
