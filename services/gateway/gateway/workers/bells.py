"""Waking one another: a bell for each process, which any of them may ring."""

import asyncio
import os
from collections.abc import Callable


class Bells:
    """Bells by row; ringing one that rings already changes nothing."""

    def __init__(self, rows: int) -> None:
        self._bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(rows)]

    def ring(self, row: int) -> None:
        """Wake a process."""
        os.eventfd_write(self._bells[row], 1)

    def ring_all(self) -> None:
        """Wake every process."""
        for row in range(len(self._bells)):
            self.ring(row)

    def listen(self, row: int, heard: Callable[[], None]) -> None:
        """Call `heard` in the running loop whenever this process's bell has been rung."""
        bell = self._bells[row]

        def hear() -> None:
            try:
                os.eventfd_read(bell)
            except BlockingIOError:
                return
            heard()

        asyncio.get_running_loop().add_reader(bell, hear)

    def stop_listening(self, row: int) -> None:
        """Listen no more."""
        asyncio.get_running_loop().remove_reader(self._bells[row])
