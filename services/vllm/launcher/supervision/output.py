"""What the engines print, on its way through the launcher to whoever reads the launcher's output.

Bytes go on as they come, and the last lines are kept. A reader that has stopped reading never holds an engine up.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

_CHUNK_BYTES = 65_536
_KEPT_LINES = 400
_LONGEST_LINE = 2_000
# So much waits for a reader that is slow (a terminal, a container's log); what comes on top is dropped and counted.
_WAITING_BYTES = 8 << 20
_LAST_WRITE_SECONDS = 5.0

log = logging.getLogger(__name__)


class Outlet:
    """A descriptor of this process that is written by a thread of its own; use it as a context manager."""

    def __init__(self, descriptor: int, waiting_bytes: int = _WAITING_BYTES) -> None:
        self._descriptor = descriptor
        self._limit = waiting_bytes
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._lost = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name=f"outlet-{descriptor}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WRITE_SECONDS)

    def put(self, data: bytes) -> None:
        """Write this when the reader takes it; returns at once."""
        with self._changed:
            if self._waiting + len(data) > self._limit:
                self._lost += len(data)
                return
            if self._lost:
                data = b"\nlauncher: %d bytes of output were dropped: nobody read them\n" % self._lost + data
                self._lost = 0
            self._chunks.append(data)
            self._waiting += len(data)
            self._changed.notify()

    def _write_all(self) -> None:
        while (data := self._next()) is not None:
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                # Nobody can be told on a broken output. The engine goes on; its last lines are kept all the same.
                self._limit = 0
            with self._changed:
                self._waiting -= len(data)

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._closing)
            return self._chunks.popleft() if self._chunks else None


class Output:
    """Both streams of one engine: forwarded, kept, and shown line by line to `on_line` from the readers' threads."""

    def __init__(self, on_line: Callable[[str], None], prefix: str = "") -> None:
        self._on_line = on_line
        self._prefix = prefix.encode()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._threads: list[threading.Thread] = []

    def take(self, stream: IO[bytes], outlet: Outlet) -> None:
        """Read a stream to its end in a thread, and close it."""
        thread = threading.Thread(target=self._read, args=(stream, outlet), name="output", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Wait until all that an ended engine wrote has been read."""
        for thread in self._threads:
            thread.join(_LAST_WRITE_SECONDS)

    def last_lines(self, count: int = _KEPT_LINES) -> list[str]:
        """The newest lines, oldest first; of a progress bar each state is one."""
        return list(self._lines)[-count:]

    def _read(self, stream: IO[bytes], outlet: Outlet) -> None:
        rest = b""
        with stream:
            while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
                if not self._prefix:
                    outlet.put(chunk)
                rest = self._cut(rest + chunk, outlet)
        if rest:
            self._note(rest + b"\n" if self._prefix else rest, outlet)

    def _cut(self, data: bytes, outlet: Outlet) -> bytes:
        """Note every whole line, and return what begins the next; one without an end is cut somewhere."""
        # A progress bar ends each state of its line with a carriage return.
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        for line in data[:end].splitlines(keepends=True):
            self._note(line, outlet)
        if len(data) - end > _CHUNK_BYTES:
            self._note(data[end:], outlet)
            return b""
        return data[end:]

    def _note(self, line: bytes, outlet: Outlet) -> None:
        if self._prefix:
            # Engines share the outlet, so only whole lines keep apart.
            outlet.put(self._prefix + line)
        text = line.decode(errors="replace").strip("\r\n")[:_LONGEST_LINE]
        if not text.strip():
            return
        self._lines.append(text)
        try:
            self._on_line(text)
        except Exception:
            log.exception("a line of the engine was not understood")
