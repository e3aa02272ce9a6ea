"""JSON lines on standard output: one for each request, one for each change of the service."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import orjson


class Batch(logging.LogRecord):
    """Several lines of one logger and message: the fields of each, with its `time` in seconds since 1970."""

    def __init__(self, name: str, message: str, lines: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(name, logging.INFO, __file__, 0, message, None, None)
        self.lines = lines


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra={"fields": {…}}` adds its keys, and `worker` itself where there are several."""

    worker: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON, or as many as it has."""
        same: dict[str, Any] = {
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.worker is not None:
            same["worker"] = self.worker
        if isinstance(record, Batch):
            return "\n".join(_line({**line, "time": _written(line["time"])}, same) for line in record.lines)
        line = {"time": _written(record.created), **getattr(record, "fields", {})}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _line(line, same)


def _line(own: dict[str, Any], same: dict[str, Any]) -> str:
    return orjson.dumps({"time": own["time"], **same, **own}, default=str).decode()


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class SharedHandler(logging.Handler):
    """Writes each line to standard output as a whole, while no other process that has the same `lock` does."""

    def __init__(self, lock: AbstractContextManager[None]) -> None:
        super().__init__()
        self._between = lock

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            left = memoryview(f"{self.format(record)}\n".encode())
            with self._between:
                while left:
                    left = left[os.write(sys.stdout.fileno(), left) :]
        except Exception:  # noqa: BLE001  (as every handler does)
            self.handleError(record)


def configure(level: str, worker: int | None = None, lock: AbstractContextManager[None] | None = None) -> None:
    """Send every logger's lines, uvicorn's included, to standard output as JSON.

    Where several processes have the same output, a `lock` keeps their lines apart, and `worker` tells whose they are.
    """
    handler = SharedHandler(lock) if lock else logging.StreamHandler(sys.stdout)
    formatter = JsonFormatter()
    formatter.worker = worker
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its start and stop lines repeat ours; its access log costs a third of the requests a second.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
