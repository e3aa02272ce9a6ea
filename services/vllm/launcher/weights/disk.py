"""Room for weights, and how much of them is here."""

import shutil
from pathlib import Path

from launcher.errors import InsufficientResources
from launcher.hardware import GIB

_RESERVE_BYTES = GIB


def require_room(folder: Path, missing_bytes: int) -> None:
    """Raise InsufficientResources unless so many bytes fit where a folder is or will be."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if missing_bytes and missing_bytes + _RESERVE_BYTES > free:
        raise InsufficientResources(
            f"{missing_bytes / GIB:.1f} GiB are to be fetched and {existing} has {free / GIB:.1f} GiB free (1 GiB stays"
            " in reserve); free some space or set ENGINE_CACHE_DIR"
        )


def bytes_in(folder: Path, pattern: str = "*") -> int:
    """Bytes of the files below a folder; one that vanishes meanwhile counts as nothing."""
    total = 0
    for path in folder.rglob(pattern):
        try:
            total += path.lstat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
