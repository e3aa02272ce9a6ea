"""Whether the engine has really ended the work of requests that the gateway ended early."""

import time

from gateway.metrics import Metrics
from gateway.readiness.counters import Counters
from gateway.upstreams import Engine

# An engine's gauges follow an abort within a step or two; after this it counts as not confirmed.
CONFIRM_SECONDS = 5.0


class Aborts:
    """Settles an engine's `unsettled_aborts` by its own gauges; each is counted once, as confirmed or not."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._tokens_before: float | None = None

    def settle(self, counters: Counters | None, probes: int) -> None:
        """Confirm ended requests when the engine has no more work than we know of, by gauges that are alive.

        Those of an engine that hangs stay as they were, and new requests of ours would make up for the ended ones: so
        either there is no work at all, or tokens have moved since the look before. `probes` of ours are work too.
        """
        aborts = self._engine.unsettled_aborts
        if not aborts:
            self._tokens_before = None
            return
        if counters is not None:
            work = counters.running + counters.waiting
            moved = self._tokens_before is not None and counters.tokens != self._tokens_before
            self._tokens_before = counters.tokens
            if not work or (moved and work <= self._engine.outstanding + probes):
                self._metrics.count_aborts(len(aborts), confirmed=True)
                aborts.clear()
                return
        self.give_up(older_than_seconds=CONFIRM_SECONDS)

    def give_up(self, older_than_seconds: float) -> None:
        """Count as not confirmed what the engine's counters have not shown in time, or cannot show any more."""
        aborts = self._engine.unsettled_aborts
        expired = [at for at in aborts if time.monotonic() - at >= older_than_seconds]
        if expired:
            self._metrics.count_aborts(len(expired), confirmed=False)
            del aborts[: len(expired)]
