"""What went on in the last minutes: a sample of the metrics every few seconds, for the status page.

Taken from the metrics, so it counts as they do, all processes together, and holds no text of a client's; what cards
hold, from their launchers.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Metric

from gateway.errors import Outcome
from gateway.schemas import RELAYED_ROUTES

SAMPLE_SECONDS = 5.0
KEPT_SAMPLES = 120  # ten minutes
KEPT_TROUBLES = 12
# How a question can end badly by what we or an engine did; what clients do wrong is theirs.
TROUBLES = (
    Outcome.UPSTREAM_ERROR,
    Outcome.TRUNCATED,
    Outcome.TIMEOUT,
    Outcome.INTERNAL_ERROR,
    Outcome.OVERLOADED,
    Outcome.NOT_READY,
    Outcome.RATE_LIMITED,
)
_log = logging.getLogger("gateway.history")


@dataclass(frozen=True, slots=True)
class Totals:
    """What the metrics say now: sums since the start, and two levels."""

    tokens: float = 0.0
    first_tokens: float = 0.0
    first_token_seconds: float = 0.0
    waiting: float = 0.0
    in_flight: float = 0.0
    troubles: tuple[float, ...] = (0.0,) * len(TROUBLES)


@dataclass(frozen=True, slots=True)
class Sample:
    """What happened between two looks; `first_token_seconds` is the mean, None where no stream began."""

    tokens_per_second: float
    first_token_seconds: float | None
    waiting: int
    in_flight: int
    troubles: int
    # What each card holds, by the driver's name for it.
    card_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Questions that ended badly, in one way, between two looks; `at` in Unix time."""

    at: float
    outcome: Outcome
    count: int


class History:
    """The last samples and troubles; `start` it inside the running loop, `stop` it before the loop ends.

    `card_bytes` says what each card holds now.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        card_bytes: Callable[[], Mapping[str, int]] = dict,
        sample_seconds: float = SAMPLE_SECONDS,
    ) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.troubles: deque[Trouble] = deque(maxlen=KEPT_TROUBLES)
        self.sample_seconds = sample_seconds
        self._registry = registry
        self._card_bytes = card_bytes
        self._before = Totals()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look; what was counted before is not news."""
        self._before = read_totals(self._registry.collect())
        self._task = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_looking(self) -> None:
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(self.sample_seconds)
            now = time.monotonic()
            try:
                self.take(read_totals(self._registry.collect()), now - looked_at)
            except Exception:  # noqa: BLE001  (logged, and tried again)
                _log.exception("the metrics could not be read")
            looked_at = now

    def take(self, totals: Totals, seconds: float) -> None:
        """Add a sample: what `totals` has more than the last one, in so many seconds."""
        before, self._before = self._before, totals
        begun = totals.first_tokens - before.first_tokens
        gained = [max(0, int(now - then)) for now, then in zip(totals.troubles, before.troubles, strict=True)]
        sample = Sample(
            tokens_per_second=round(max(0.0, totals.tokens - before.tokens) / seconds, 1),
            first_token_seconds=(
                round((totals.first_token_seconds - before.first_token_seconds) / begun, 4) if begun > 0 else None
            ),
            waiting=int(totals.waiting),
            in_flight=int(totals.in_flight),
            troubles=sum(gained),
            card_bytes=self._card_bytes(),
        )
        self.samples.append(sample)
        now = time.time()
        self.troubles.extend(
            Trouble(now, outcome, count) for outcome, count in zip(TROUBLES, gained, strict=True) if count > 0
        )


def read_totals(families: Iterable[Metric]) -> Totals:
    """Return the few sums of a metrics page that the status page shows."""
    plain: dict[str, float] = {}
    troubles = dict.fromkeys(TROUBLES, 0.0)
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        if not labels or (sample.name == "gateway_tokens_total" and labels["direction"] == "completion"):
            plain[sample.name] = sample.value
        elif sample.name == "gateway_requests_total" and labels["route"] in RELAYED_ROUTES:
            outcome = Outcome(labels["outcome"])
            if outcome in troubles:
                troubles[outcome] += sample.value
    return Totals(
        tokens=plain.get("gateway_tokens_total", 0.0),
        first_tokens=plain.get("gateway_time_to_first_token_seconds_count", 0.0),
        first_token_seconds=plain.get("gateway_time_to_first_token_seconds_sum", 0.0),
        waiting=plain.get("gateway_queue_depth", 0.0),
        in_flight=plain.get("gateway_requests_in_flight", 0.0),
        troubles=tuple(troubles.values()),
    )
