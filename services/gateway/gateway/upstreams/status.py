"""What a launcher says at `/status`: its own stage, and that of each engine that it runs."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gateway.schemas import STAGES, StageName

VERSION = 1
STATUS_BYTES = 65_536
MOST_ENGINES = 64
MOST_CARDS = 64
# A thousand times the largest card's memory.
MOST_CARD_BYTES = 10**15
# A thousand times what the largest card is planned for.
MOST_SEQUENCES = 1_000_000
_SHOWN_CHARACTERS = 200
_SERVING = STAGES.index("serving")
_OK = 200


class BadStatus(Exception):  # noqa: N818  (a finding, not an error of ours)
    """What came is no launcher's status; the message says what it is, without any of its text."""


def _printable(text: str) -> str:
    return "".join(character for character in text[:_SHOWN_CHARACTERS] if character.isprintable())


# 1e11 is in the year 5138: what is later is no time, and would overflow where it is calculated with.
UnixSeconds = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class Stage(BaseModel):
    """How far something has come; `progress` is a share of 1, `since` in Unix time."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    stage: StageName
    since: UnixSeconds
    progress: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    detail: Annotated[str, AfterValidator(_printable)] | None = None

    @property
    def order(self) -> int:
        """Its place in the order of stages."""
        return STAGES.index(self.stage)

    @property
    def is_before_serving(self) -> bool:
        """Whether it is one of a start."""
        return self.order < _SERVING

    @property
    def is_over(self) -> bool:
        """Whether the engine is being stopped, or has ended."""
        return self.order > _SERVING

    @property
    def summary(self) -> str:
        """The stage and its progress in words that may be shown to anybody."""
        return self.stage if self.progress is None else f"{self.stage}, {100 * self.progress:.0f} %"

    @property
    def words(self) -> str:
        """All that is known of it, for operators."""
        return f"{self.summary} ({self.detail})" if self.detail else self.summary


class EngineStatus(Stage):
    """One engine: the port that it listens on, and when its process began, in Unix time, if it has.

    `sequences` is how many it was told to run at most; its cache may hold fewer.
    """

    port: Annotated[int, Field(ge=1, le=65_535)]
    started_at: UnixSeconds | None = None
    sequences: Annotated[int, Field(ge=1, le=MOST_SEQUENCES)] | None = None


def _one_a_port(engines: list[EngineStatus]) -> list[EngineStatus]:
    if len({engine.port for engine in engines}) < len(engines):
        raise ValueError("two engines of one port")
    return engines


class CardStatus(BaseModel):
    """A card that the engines run on, by the driver's own name for it, and its memory, whoever holds that."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    uuid: Annotated[str, AfterValidator(_printable)]
    name: Annotated[str, AfterValidator(_printable)]
    memory_used_bytes: Annotated[int, Field(ge=0, le=MOST_CARD_BYTES)]
    memory_total_bytes: Annotated[int, Field(ge=1, le=MOST_CARD_BYTES)]


class LauncherStatus(Stage):
    """The launcher's own stage, and its engines and cards: none until it has made its plan, no card on a CPU."""

    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    engines: Annotated[list[EngineStatus], Field(max_length=MOST_ENGINES), AfterValidator(_one_a_port)]
    cards: Annotated[list[CardStatus], Field(max_length=MOST_CARDS)] = []


def read_status(status: int, body: bytes) -> LauncherStatus:
    """Return what the answer to `GET /status` says; raise BadStatus for anything but a launcher's own."""
    if status != _OK:
        raise BadStatus(f"/status is answered with {status}")
    if len(body) >= STATUS_BYTES:
        raise BadStatus(f"/status is answered with {STATUS_BYTES} bytes or more")
    try:
        return LauncherStatus.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # Only names that we know ourselves: the rest is the other side's text.
        place = [part for part in first["loc"] if isinstance(part, int) or part in _NAMES]
        where = f" ({'.'.join(str(part) for part in place)}: {first['type']})" if place else ""
        raise BadStatus(f"/status is answered with something else than a launcher's status{where}") from None


_NAMES = {*LauncherStatus.model_fields, *EngineStatus.model_fields, *CardStatus.model_fields}
