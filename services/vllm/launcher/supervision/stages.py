"""The stages of a start, and how vLLM's log tells them.

Wordings are those of vLLM 0.26 to 0.33. One that is missing costs its stage, which is then part of the one before it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Where an engine is, in the order of its life."""

    CHECKING = "checking"
    DOWNLOADING = "downloading"
    WAITING = "waiting"
    STARTING = "starting"
    LOADING = "loading"
    COMPILING = "compiling"
    CAPTURING = "capturing"
    WARMING = "warming"
    SERVING = "serving"
    STOPPING = "stopping"
    ENDED = "ended"

    @property
    def rank(self) -> int:
        """Place in the order, from 0."""
        return list(Stage).index(self)


@dataclass(frozen=True)
class Sign:
    """What a line says: the stage, and which share of it is done, if it says."""

    stage: Stage
    progress: float | None = None


# The first that matches counts. A group named `percent` is the progress.
_SIGNS = (
    (Stage.LOADING, r"Loading [\w ]*checkpoint shards:\s*(?P<percent>\d+)%"),
    (Stage.LOADING, r"Starting to load model|Loading weights|Loading model from"),
    (Stage.CAPTURING, r"Capturing (?:CUDA|cudagraph)[^:]*:\s*(?P<percent>\d+)%"),
    (Stage.CAPTURING, r"Capturing (?:CUDA|cudagraph)|Graph capturing (?:started|\.\.\.)"),
    (
        Stage.WARMING,
        (
            r"Graph capturing finished|init engine \(|Supported tasks|Starting vLLM (?:API )?server"
            r"|Started server process|Application startup|Warming up (?:chat|multi-modal)"
        ),
    ),
    (
        Stage.COMPILING,
        (
            r"Using cache directory: .*torch\.compile|Dynamo bytecode transform|Compiling a graph|Start compiling"
            r"|torch\.compile t(?:akes|ook)|Directly load the compiled graph|Warming up model for the compilation"
        ),
    ),
)
_PATTERNS = tuple((stage, re.compile(pattern)) for stage, pattern in _SIGNS)


def read_sign(line: str) -> Sign | None:
    """What a line of vLLM's log says about its stage; None for most lines."""
    for stage, pattern in _PATTERNS:
        match = pattern.search(line)
        if match:
            percent = match.groupdict().get("percent")
            return Sign(stage, None if percent is None else min(int(percent), 100) / 100)
    return None
