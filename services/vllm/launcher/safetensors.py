"""Whether a safetensors file is whole, told from its header and its size alone."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

_LENGTH_BYTES = 8
# The format's own limit on the header.
_MAX_HEADER_BYTES = 100_000_000
_LFS_POINTER = b"version https://git-lfs"


class UnsoundError(Exception):
    """The file is not a whole safetensors file; the text says in what way."""


@dataclass(frozen=True)
class Contents:
    """Names of the tensors in a file, and the bytes of its data."""

    tensors: frozenset[str]
    data_bytes: int


def inspect(path: Path) -> Contents:
    """Read the header and compare it with the file's size.

    Raises UnsoundError if they disagree, OSError if the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES)
        if (start + file.read(len(_LFS_POINTER) - len(start))).startswith(_LFS_POINTER):
            raise UnsoundError("is a Git LFS pointer of a few bytes, not the weights themselves")
        if len(start) < _LENGTH_BYTES:
            raise UnsoundError(f"is truncated: it has {size} bytes")
        (header_bytes,) = struct.unpack("<Q", start)
        if header_bytes > _MAX_HEADER_BYTES:
            raise UnsoundError("does not begin with a safetensors header")
        if _LENGTH_BYTES + header_bytes > size:
            raise UnsoundError(f"is truncated inside its header: it has {size} bytes")
        file.seek(_LENGTH_BYTES)
        tensors = _parse(file.read(header_bytes))
    data_bytes = max((end for _, end in tensors.values()), default=0)
    expected = _LENGTH_BYTES + header_bytes + data_bytes
    if size != expected:
        word = "is truncated" if size < expected else "has bytes after its end"
        raise UnsoundError(f"{word}: it has {size} bytes, its header describes {expected}")
    return Contents(frozenset(tensors), data_bytes)


def _parse(header: bytes) -> dict[str, tuple[int, int]]:
    """Begin and end of every tensor's data."""
    try:
        entries = json.loads(header)
        return {
            name: (int(entry["data_offsets"][0]), int(entry["data_offsets"][1]))
            for name, entry in entries.items()
            if name != "__metadata__"
        }
    except (ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        raise UnsoundError("has a damaged header") from error
