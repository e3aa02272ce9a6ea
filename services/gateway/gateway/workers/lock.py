"""A lock between processes, which the system takes from one that dies."""

import fcntl
import os
from types import TracebackType


class Lock:
    """Held for microseconds, as a context; a process of its own may not nest it."""

    def __init__(self) -> None:
        self._file = os.memfd_create("lock", os.MFD_CLOEXEC)

    def __enter__(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)
