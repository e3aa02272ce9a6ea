"""Whether a safetensors file is whole, told from its header and its size alone."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.checkpoint.files import LFS_POINTER

_LENGTH_BYTES = 8
# The format's own limit on the header.
_MAX_HEADER_BYTES = 100_000_000
# Bits a value; the names are the format's.
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class UnsoundError(Exception):
    """The file is not a whole safetensors file; the text says in what way."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file: its number type by the format's name, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data_bytes: int


def inspect(path: Path) -> dict[str, Tensor]:
    """Read the header and compare it with the file's size.

    Raises UnsoundError if they disagree, OSError if the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES)
        if (start + file.read(len(LFS_POINTER) - len(start))).startswith(LFS_POINTER):
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
    expected = _LENGTH_BYTES + header_bytes + sum(tensor.data_bytes for tensor in tensors.values())
    if size != expected:
        word = "is truncated" if size < expected else "has bytes after its end"
        raise UnsoundError(f"{word}: it has {size} bytes, its header describes {expected}")
    return tensors


def _parse(header: bytes) -> dict[str, Tensor]:
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        rows = sorted(entries.items(), key=lambda row: row[1]["data_offsets"])
        end = 0
        tensors = {}
        for name, entry in rows:
            tensors[name], end = _tensor(name, entry, end)
    except (ValueError, AttributeError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise UnsoundError("has a damaged header") from error
    return tensors


def _tensor(name: str, entry: Mapping[str, Any], place: int) -> tuple[Tensor, int]:
    """The tensor that begins at a place, and where it ends: the format leaves no room between two."""
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(length) for length in entry["shape"])
    bits = _BITS.get(entry["dtype"])
    if begin != place or end < begin or (bits and math.prod(shape) * bits != (end - begin) * 8):
        raise UnsoundError(f"has a damaged header: {name} has not the bytes of its shape")
    return Tensor(str(entry["dtype"]), shape, end - begin), end
