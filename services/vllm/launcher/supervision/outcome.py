"""How a fleet ended: what began the end, and what was found then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from signal import Signals
from typing import Any

from launcher.errors import CardFault


class Kind(StrEnum):
    """What began the end."""

    STOPPED = "stopped"
    ENDED = "ended"
    LATE = "late"
    STALLED = "stalled"
    CARD = "card"


@dataclass(frozen=True)
class Cause:
    """What began the end.

    `engine` is the index of the engine that did, `status` its exit code (negative for a signal), `signal` the stop
    signal that came, `still_seconds` how long a stalled engine had stood still, `fault` what the card's driver said.
    """

    kind: Kind
    engine: int | None = None
    status: int | None = None
    signal: Signals | None = None
    still_seconds: float = 0.0
    fault: CardFault | None = None


@dataclass(frozen=True)
class Scene:
    """What was found when the end began, before anything was done about it."""

    seconds: float
    served_seconds: float
    stages: tuple[str, ...]
    processes: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Outcome:
    """The whole end. `killed` says that the stop limit was passed; `lines` are each engine's last ones, by its name."""

    cause: Cause
    scene: Scene
    killed: bool
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    card_notes: Sequence[str] = ()
