"""How far a download is: measured in the child that fetches, told to the launcher, and logged."""

import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TextIO

_LOOK_SECONDS = 0.5
# The rate is that of the last so many seconds, so that a stall shows.
_WINDOW_SECONDS = 10.0
_LOG_STEPS = 20
_LOG_SECONDS = 2.0
_LOG_SILENCE_SECONDS = 30.0
_MB = 1_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Bytes that are here, bytes in all, and bytes a second of late."""

    done: int
    total: int
    rate: float

    @property
    def fraction(self) -> float:
        """Between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 1.0

    @property
    def detail(self) -> str:
        """For people: `310 of 721 MB, 12.1 MB/s, 34 s left`."""
        parts = [f"{self.done / _MB:.0f} of {self.total / _MB:.0f} MB"]
        if self.rate > 0:
            parts += [f"{self.rate / _MB:.1f} MB/s", f"{_time((self.total - self.done) / self.rate)} left"]
        return ", ".join(parts)

    def line(self) -> str:
        """For read_progress, in one line without its end."""
        return json.dumps(asdict(self))


def read_progress(line: str) -> Progress | None:
    """Read what Progress.line wrote; None for anything else."""
    try:
        values = json.loads(line)
        return Progress(int(values["done"]), int(values["total"]), float(values["rate"]))
    except (ValueError, TypeError, KeyError):
        return None


class Meter:
    """Turns counts of bytes into Progress."""

    def __init__(self, total: int, tell: Callable[[Progress], None]) -> None:
        self._total = total
        self._tell = tell
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, done: int, now: float) -> None:
        """So many bytes are here, at a time of the monotonic clock."""
        done = min(done, self._total)
        while len(self._seen) > 1 and now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        self._seen.append((now, done))
        since, before = self._seen[0]
        self._tell(Progress(done, self._total, max(0.0, (done - before) / (now - since)) if now > since else 0.0))


class LogLines:
    """One line every 5 %, not faster than every 2 s, one every 30 s of a slow line, and the last one."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def tell(self, progress: Progress, now: float | None = None) -> None:
        """Log it if it is time to."""
        now = time.monotonic() if now is None else now
        step = progress.done * _LOG_STEPS // max(1, progress.total)
        if self._last is not None:
            since, moved = now - self._last[0], step > self._last[1]
            last = moved and progress.done == progress.total
            due = since >= (_LOG_SECONDS if moved else _LOG_SILENCE_SECONDS)
            if not (due or last):
                return
        self._last = (now, step)
        log.info("%.0f %%: %s", 100 * progress.fraction, progress.detail)


@contextlib.contextmanager
def watching(measure: Callable[[], int], total: int, tell: Callable[[Progress], None]) -> Iterator[None]:
    """Tell the progress twice a second while the block runs; `measure` counts the bytes that are here."""
    meter = Meter(total, tell)
    ended = threading.Event()

    def look() -> None:
        meter.update(measure(), time.monotonic())
        while not ended.wait(_LOOK_SECONDS):
            meter.update(measure(), time.monotonic())

    watcher = threading.Thread(target=look, name="progress")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    meter.update(measure(), time.monotonic())


class Teller:
    """Writes a line for each step to a pipe or file, until nobody reads it any more."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO | None = path.open("a", buffering=1, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def tell(self, progress: Progress) -> None:
        """Tell one step."""
        if self._file is None:
            return
        try:
            self._file.write(progress.line() + "\n")
        except BrokenPipeError:
            log.warning("nobody reads the progress any more; the download goes on")
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            # What could not be written is not worth another error.
            with contextlib.suppress(BrokenPipeError):
                file.close()


class Channel:
    """A named pipe by which a child tells its progress; `path` is the child's end, as `fetch --progress PATH`."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="launcher-")
        self.path = Path(self._folder.name) / "progress"
        os.mkfifo(self.path)
        # Both ends are held here: so neither opening nor reading depends on what becomes of the child.
        self._descriptor = os.open(self.path, os.O_RDWR)
        self._listener = threading.Thread(target=self._listen, name="progress")
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._descriptor, b"\n\n")
        self._listener.join()
        os.close(self._descriptor)
        self._folder.cleanup()

    def _listen(self) -> None:
        """Read lines until an empty one."""
        with os.fdopen(os.dup(self._descriptor), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line == "\n":
                    return
                progress = read_progress(line)
                if progress is not None:
                    self._on_progress(progress)


def _time(seconds: float) -> str:
    if seconds < 100:  # noqa: PLR2004  (people read 90 s more easily than 1.5 min)
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
