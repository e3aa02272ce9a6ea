"""JSON lines on standard output: one for each request, one for each change of the service.

No prompt, no answer, no key is ever logged; fields are the ones named here. The client is logged as it is counted:
an address, the /64 of one, or a key's name, as nginx's own log has it, since whoever floods must be found.
"""

import logging
import os
import sys
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, ClassVar

import orjson

from gateway.errors import Outcome
from gateway.schemas import RELAYED_ROUTES, Exchange

_UNFINISHED = "ASGI callable returned without completing response."
_requests = logging.getLogger("gateway.requests")
_MILLISECONDS = 1000.0


class RequestRecord(logging.LogRecord):
    """The record of a request's line, with its fields and nothing that the line does not say.

    Asking for the caller, the thread and the process, as every other record does, would cost half of the line: 17 µs
    instead of 9 (Python 3.11, timeit).
    """

    _common: ClassVar[dict[str, Any]] = {
        "name": "gateway.requests",
        "msg": "request",
        "pathname": __file__,
        "filename": "logs.py",
        "module": "logs",
        "funcName": "log_exchange",
        "lineno": 0,
        **dict.fromkeys(("args", "exc_info", "exc_text", "stack_info")),
    }

    def __init__(self, level: int, fields: dict[str, Any]) -> None:
        """Take the moment."""
        named = logging.getLevelName(level)
        self.__dict__.update(self._common, created=time.time(), levelno=level, levelname=named, fields=fields)


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra={"fields": {…}}` adds its keys, and `worker` itself where there are several."""

    worker: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.worker is not None:
            line["worker"] = self.worker
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


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
    # A client that takes nothing is let go in the middle of its answer; the request's own line says so.
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != _UNFINISHED)
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False


def log_exchange(exchange: Exchange, outcome: Outcome, finished_at: float) -> None:
    """Write a finished request's line; the probes' own only at level debug."""
    level = logging.DEBUG if exchange.route in _QUIET else logging.INFO
    if not _requests.isEnabledFor(level):
        return
    fields: dict[str, Any] = {
        "request_id": exchange.request_id,
        "route": exchange.route,
        "outcome": outcome,
        "status": exchange.status,
        "duration_ms": _milliseconds(finished_at - exchange.received_at),
    }
    if exchange.error_code:
        fields["error"] = exchange.error_code
    if exchange.route in RELAYED_ROUTES:
        fields |= {
            "engine_request_id": exchange.engine_request_id,
            "client": exchange.client,
            "stream": exchange.streamed,
            "engine": exchange.engine,
            "first_token_ms": _milliseconds(exchange.engine_answered_at - exchange.received_at)
            if exchange.streamed and exchange.engine_answered_at
            else None,
            "prompt_tokens": exchange.prompt_tokens,
            "completion_tokens": exchange.completion_tokens,
        }
    _requests.handle(RequestRecord(level, fields))


def _milliseconds(seconds: float) -> float:
    return round(seconds * _MILLISECONDS, 2)


_QUIET = frozenset({"livez", "readyz", "metrics", "status"})
