"""How far the engine's start has come, by the launcher's own word."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

# As the launcher goes through them.
ORDER = ("checking", "downloading", "waiting", "starting", "loading", "compiling", "capturing", "warming")


@dataclass(frozen=True)
class Stage:
    """A stage by its name, the share of it that is done, what there is to say of it, and the seconds left in all.

    All but the name are None where they are not known.
    """

    name: str
    progress: float | None = None
    detail: str | None = None
    seconds_left: float | None = None

    @property
    def is_start(self) -> bool:
        """Whether the engine is still to come."""
        return self.name not in {"serving", "stopping", "ended"}

    @property
    def remarks(self) -> str:
        """The detail and the time left, in words."""
        left = None if self.seconds_left is None else f"about {self.seconds_left:.0f} s left"
        return ", ".join(part for part in (self.detail, left) if part)

    @property
    def words(self) -> str:
        """All of it on one line."""
        share = "" if self.progress is None else f", {100 * self.progress:.0f} %"
        return f"{self.name}{share}{f' ({self.remarks})' if self.remarks else ''}"


def furthest_behind(stages: Sequence[Stage]) -> Stage | None:
    """Return the stage of the one that keeps the others waiting; None of none."""
    starting = [stage for stage in stages if stage.is_start]
    return next(iter(sorted(starting, key=_rank) or stages), None)


def _rank(stage: Stage) -> int:
    return ORDER.index(stage.name) if stage.name in ORDER else len(ORDER)


def read_stage(status: str | bytes, seconds_left: float | None = None) -> Stage | None:
    """Return the stage in a launcher's status, or None for anything else: what is shown is no reason to fail."""
    try:
        told = json.loads(status)
        name, progress, detail = told["stage"], told.get("progress"), told.get("detail")
        engines = [engine["stage"] for engine in told["engines"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    if not isinstance(name, str) or not isinstance(progress, int | float | None):
        return None
    words = [detail] if isinstance(detail, str) else []
    if len(engines) > 1:
        words.append(f"{engines.count('serving')} of {len(engines)} engines serve")
    share = None if progress is None else min(max(float(progress), 0.0), 1.0)
    return Stage(name, share, ", ".join(words) or None, seconds_left)


def read_seconds_left(report: str | None) -> float | None:
    """Return the time left in what the gateway's `/readyz?verbose` says, if it knows it."""
    try:
        left = json.loads(report or "null")["seconds_left"]
    except (ValueError, LookupError, TypeError):
        return None
    return float(left) if isinstance(left, int | float) else None
