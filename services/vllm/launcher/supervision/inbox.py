"""The signals of this process, to be waited for instead of interrupting."""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# No signal has this number, so it can say "look around" on the same descriptor.
_NUDGE = 0


class Inbox:
    """Signals of this process in the order in which they came; the previous handlers come back at the end."""

    def __enter__(self) -> Self:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._previous = {number: signal.signal(number, _noted) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
        self._previous_descriptor = signal.set_wakeup_fd(self._writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float | None) -> list[signal.Signals]:
        """Signals that came, as soon as there is one; none after so many seconds (None: no limit), or a nudge."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        numbers = os.read(self._reader, 4096) if ready else b""
        return [signal.Signals(number) for number in numbers if number != _NUDGE]

    def nudge(self) -> None:
        """Let `wait` return; from any thread."""
        try:
            os.write(self._writer, bytes([_NUDGE]))
        except BlockingIOError:
            return  # full of what wakes it as well


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Only the wake-up descriptor matters; a handler must exist for it to be written."""
