"""How long engines take to start, learned from earlier starts and kept in a file.

Only starts that the gateway saw from the outside count, from the start of the engine's process, by its own
`process_start_time_seconds`, to the end of its warm-up.
"""

import asyncio
import json
import logging
import os
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

_log = logging.getLogger("gateway.readiness")
FILE_NAME = "starts.json"
# The last few, so that another model or card is learned soon, and one slow download counts for little.
KEPT_STARTS = 5
MOST_FAMILIES = 64
# A process that is older did not start just now.
LONGEST_START_SECONDS = 86_400.0
CLOSE_SECONDS = 2.0


class _File(BaseModel):
    """What the file holds: the last starts in seconds, oldest first, by the engines' name."""

    version: Literal[1]
    starts: dict[str, list[Annotated[float, Field(gt=0, le=LONGEST_START_SECONDS, allow_inf_nan=False)]]]


class StartTimes:
    """The durations of earlier starts; without a folder they are forgotten when the gateway ends."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE_NAME if folder else None
        self._starts: dict[str, list[float]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_written = True

    def load(self) -> None:
        """Read the file; one that is missing, broken or no file is an empty one."""
        if self._path is None or not (self._path.is_file() or self._path.is_dir()):
            return
        try:
            self._starts = _File.model_validate_json(self._path.read_bytes()).starts
        except (OSError, ValidationError) as error:
            _warn(self._path, "cannot be read; earlier starts are forgotten", error)

    def usual_seconds(self, family: str) -> float | None:
        """Return the median of the last starts, or None if there was none."""
        starts = self._starts.get(family)
        return median(starts) if starts else None

    def remember(self, family: str, seconds: float) -> None:
        """Add a start; the file is written beside, and one that cannot be written costs a log line and no more."""
        if not 0 < seconds <= LONGEST_START_SECONDS:
            return
        starts = [*self._starts.pop(family, []), max(0.1, round(seconds, 1))]
        self._starts[family] = starts[-KEPT_STARTS:]
        for oldest in list(self._starts)[:-MOST_FAMILIES]:
            del self._starts[oldest]
        self._is_written = self._path is None
        if not self._is_written and self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def close(self) -> None:
        """Wait for the file, at most 2 s."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_SECONDS)

    async def _write(self) -> None:
        """Write until the file is as new as what is known: one write at a time."""
        while self._path is not None and not self._is_written:
            self._is_written = True
            content = json.dumps(_File(version=1, starts=self._starts).model_dump(), indent=1)
            await asyncio.to_thread(_replace, self._path, content)
        self._writing = None


def _replace(path: Path, content: str) -> None:
    """Replace the file as a whole, so that no reader ever finds half of it."""
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(content, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        _warn(path, "cannot be written; the next start will not know how long this one took", error)


def _warn(path: Path, consequence: str, error: Exception) -> None:
    fields = {"file": path.name, "error": str(error).splitlines()[0]}
    _log.warning("GATEWAY_STATE_DIR: the file of start times %s", consequence, extra={"fields": fields})
