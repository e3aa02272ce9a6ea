"""A known trouble, as data: where its sign shows, what it looks like, why it is so, and what cures it."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Where evidence comes from; the first four are the services' logs."""

    ENGINE = "vllm"
    GATEWAY = "gateway"
    PAGE = "chat-ui"
    EDGE = "nginx"
    DOCKER = "docker"  # what the Docker engine says, and what `docker compose up` said the last time
    STATES = "states"  # of the containers or processes
    LAST_WORDS = "last-words"  # of the launcher
    READINESS = "readiness"  # what the gateway says of the engines, and its own warnings as figures
    ANSWER = "answer"  # what a question through the front door brought
    CARD = "card"
    KERNEL = "kernel"
    HOST = "host"
    SETTINGS = "settings"


LOGS = (Source.ENGINE, Source.GATEWAY, Source.PAGE, Source.EDGE)


class Trouble(StrEnum):
    """The kinds that people come with."""

    START = "does not start"
    MEMORY = "out of memory"
    CONNECTION = "no connection"
    ANSWERS = "wrong answers"
    SPEED = "slow or refused"
    HARDWARE = "the card"


class Weight(StrEnum):
    """When a sign counts."""

    FAULT = "always"
    HINT = "while the stack does not answer"
    ECHO = "while the stack does not answer and nothing else explains it"


@dataclass(frozen=True)
class Signature:
    """`cause` and `cure` may name the pattern's groups in braces. The pattern is searched in one line at a time."""

    id: str
    kind: Trouble
    looks_at: tuple[Source, ...]
    pattern: re.Pattern[str]
    cause: str
    cure: str
    weight: Weight = Weight.FAULT
