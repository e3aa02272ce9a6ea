"""A few bytes that one process writes and all of them read; they outlive the writer."""

import mmap
import struct

_VERSION = struct.Struct("=Q")
_LENGTH = struct.Struct("=Q")


class Note:
    """The last bytes that were put, whole or not at all: they are written beside those before them, then pointed to."""

    def __init__(self, most_bytes: int) -> None:
        self._size = _LENGTH.size + most_bytes
        self._memory = mmap.mmap(-1, _VERSION.size + 2 * self._size)

    @property
    def version(self) -> int:
        """How often something was put."""
        return int(_VERSION.unpack_from(self._memory)[0])

    def put(self, content: bytes) -> None:
        """Replace what is there; raises ValueError if it is too long."""
        if len(content) > self._size - _LENGTH.size:
            raise ValueError(f"{len(content)} bytes are more than {self._size - _LENGTH.size}")
        version = self.version + 1
        start = self._start(version)
        _LENGTH.pack_into(self._memory, start, len(content))
        self._memory[start + _LENGTH.size : start + _LENGTH.size + len(content)] = content
        _VERSION.pack_into(self._memory, 0, version)

    def get(self) -> bytes:
        """Return what was put last; empty if nothing was."""
        while True:
            version = self.version
            start = self._start(version)
            length = min(_LENGTH.unpack_from(self._memory, start)[0], self._size - _LENGTH.size)
            content = self._memory[start + _LENGTH.size : start + _LENGTH.size + length]
            # The place is written again only after the next version has begun to count.
            if version == self.version:
                return content

    def _start(self, version: int) -> int:
        return _VERSION.size + version % 2 * self._size
