"""From what was seen of an end to the error that explains it."""

import logging
import re
import signal
from collections.abc import Sequence

from launcher import errors
from launcher.settings import Settings
from launcher.supervision.outcome import Kind, Outcome

_CUDA_MEMORY = re.compile(r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|cudaErrorMemoryAlloc")
_CARD_TOO_FULL = re.compile(r"Free memory on device .*less than desired|No available memory for the cache blocks")
# `(EngineCore pid=7) ERROR 01-31 12:00:00 [core.py:1] ValueError: text`, with or without what stands before.
_ERROR = re.compile(r"\b((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (.+)")
# pydantic writes what is wrong on a line of its own, after the name of the error.
_VALUE_ERROR = re.compile(r"\b(Value error), (.+?)(?: \[type=|$)")
# A warning may quote an error that has not happened.
_NO_ERROR = re.compile(r"\b(?:DEBUG|INFO|WARNING) \d\d-\d\d ")
# vLLM's parents report that a child failed; the child's own words say more.
_ECHOES = re.compile(r"Engine core initialization failed|EngineDeadError|See root cause above|See stack trace|died")
_LONGEST_QUOTE = 300
_LESS = "Lower ENGINE_VRAM_GB, ENGINE_KV_CACHE_GB, ENGINE_MAX_SEQUENCES or ENGINE_MAX_MODEL_LEN"

log = logging.getLogger(__name__)


def explain(outcome: Outcome, settings: Settings, oom_kills: int) -> errors.LauncherError | None:
    """The error for an end; None after a stop on request, which is logged.

    `oom_kills` says how many processes the kernel killed for want of memory since the start.
    """
    cause, seconds = outcome.cause, outcome.scene.seconds
    if cause.kind is Kind.STOPPED:
        return _stopped(outcome, settings)
    if cause.fault is not None:
        return cause.fault
    name = f"engine {(cause.engine or 0) + 1}"
    if cause.kind is Kind.LATE:
        return errors.StartTimeout(
            f"{name} was not healthy after {settings.start_timeout_seconds} s and was killed while"
            f" {outcome.scene.stages[cause.engine or 0]}; its log is above. Raise ENGINE_START_TIMEOUT_SECONDS if it"
            " was still working"
        )
    if cause.kind is Kind.STALLED:
        return errors.EngineStalled(
            f"{name} answered nothing and computed nothing for {cause.still_seconds:.0f} s (ENGINE_STALL_SECONDS) and"
            " was killed" + _driver_said(outcome)
        )
    ended = engine_ended(name, cause.status or 0, seconds, outcome.lines.get(name, ()), oom_kills)
    return type(ended)(f"{ended}{_driver_said(outcome)}")


def _stopped(outcome: Outcome, settings: Settings) -> errors.LauncherError | None:
    if outcome.killed:
        return errors.EngineKilled(
            f"vLLM did not end within {settings.shutdown_timeout_seconds} s and was killed"
            " (ENGINE_SHUTDOWN_TIMEOUT_SECONDS)"
        )
    if outcome.cause.signal is not None:
        log.info("stopped on %s after %.1f s", outcome.cause.signal.name, outcome.scene.seconds)
    return None


def _driver_said(outcome: Outcome) -> str:
    return f". The driver had said: {outcome.card_notes[-1]}" if outcome.card_notes else ""


def engine_ended(name: str, status: int, seconds: float, lines: Sequence[str], oom_kills: int) -> errors.LauncherError:
    """The error for an engine that ended by itself.

    `lines` are its last ones; `oom_kills` says how many processes the kernel killed for want of memory meanwhile.
    """
    what = f"{name} ended by itself after {seconds:.0f} s, {_status(status)}"
    if oom_kills > 0:
        return errors.OutOfMemory(
            f"{what}: the kernel killed a process of it for want of host memory. Raise the container's memory"
            " (STACK_ENGINE_MEMORY), or lower ENGINE_KV_CACHE_GB or ENGINE_MAX_MODEL_LEN"
        )
    full = next((line for line in reversed(lines) if _CUDA_MEMORY.search(line) or _CARD_TOO_FULL.search(line)), None)
    if full is not None:
        return errors.OutOfMemory(f"{what}: the card's memory was full ({_quote(full)}). {_LESS}")
    root = _root_error(lines)
    return errors.EngineEnded(f"{what}{f': {root}' if root else ''}; see its log")


def _root_error(lines: Sequence[str]) -> str:
    """The last error of the log that is not the echo of another."""
    told = [line for line in lines if not _NO_ERROR.search(line)]
    found = [f"{match[1]}: {match[2]}" for line in told if (match := _ERROR.search(line) or _VALUE_ERROR.search(line))]
    own = [text for text in found if not _ECHOES.search(text)]
    return (own or found or [""])[-1][:_LONGEST_QUOTE]


def _quote(line: str) -> str:
    match = _ERROR.search(line)
    return (match[2] if match else line).strip()[:_LONGEST_QUOTE]


def _status(status: int) -> str:
    if status >= 0:
        return f"with exit code {status}"
    number = -status
    return f"by {signal.Signals(number).name if number in set(signal.Signals) else str(number)}"
