"""How the starts before this one ended, so that one that is repeated over and over waits before the next try."""

import hashlib
import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "recent-ends.json"
# One that served for so long has worked; what ends it then is another matter.
GOOD_RUN_SECONDS = 300
_FREE_TRIES = 2
_LONGEST_WAIT_SECONDS = 60.0
_KEPT = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class End:
    """One abnormal end: when (Unix seconds), exit code, the reason in a line, and for how long it had served."""

    time: float
    exit_code: int
    reason: str
    served_seconds: float


class History:
    """The abnormal ends in a row of launchers with these very settings; anything else begins a new row."""

    def __init__(self, folder: Path, settings: str) -> None:
        self._path = folder / FILE
        self._settings = hashlib.sha256(settings.encode()).hexdigest()

    def ends(self) -> list[End]:
        """The row, oldest first; empty if there is none, or it cannot be read."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            if found["settings"] != self._settings:
                return []
            return [End(**end) for end in found["ends"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return []

    def add(self, end: End) -> None:
        """Note an abnormal end; one after a good run begins a new row."""
        ends = [] if end.served_seconds > GOOD_RUN_SECONDS else [*self.ends(), end][-_KEPT:]
        if not ends:
            self.clear()
            return
        text = json.dumps({"settings": self._settings, "ends": [asdict(end) for end in ends]})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:
            log.warning("this end could not be noted in %s: %s", self._path, error)

    def clear(self) -> None:
        """Forget the row, after a good run or an orderly stop."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s could not be removed: %s", self._path, error)


def wait_seconds(ends: list[End], now: float) -> float:
    """How long to wait at a start: 2 s after the second end in a row, then twice as long, at most 60 s.

    The time that has passed since the last end counts, and so does a clock that was set back: never more than 60 s.
    """
    if len(ends) < _FREE_TRIES:
        return 0.0
    delay = min(_LONGEST_WAIT_SECONDS, 2.0 ** (len(ends) - _FREE_TRIES + 1))
    return max(0.0, min(delay, ends[-1].time + delay - now))


def summarize(ends: list[End]) -> str:
    """The row in one line."""
    last = ends[-1]
    codes = ", ".join(str(end.exit_code) for end in ends)
    when = time.strftime("%H:%M:%S", time.localtime(last.time))
    return f"{len(ends)} ends in a row (exit codes {codes}); the last at {when}: {last.reason}"
