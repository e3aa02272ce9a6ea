"""Putting engines into states: noted, logged, published, and told to whoever waits for one."""

import logging
import time
from collections.abc import Callable

from gateway.metrics import Metrics
from gateway.upstreams import STATES, Engine, Load, State

_log = logging.getLogger("gateway.readiness")


class Transitions:
    """The one place that changes an engine's state; `on_change` is called after each change, and each look."""

    def __init__(self, metrics: Metrics, on_change: Callable[[], None]) -> None:
        self._metrics = metrics
        self._on_change = on_change

    def show(self, engine: Engine) -> None:
        """Publish the state of an engine that has just become known."""
        self._metrics.show_engine(engine.label, engine.state, STATES)

    def clear(self, engine: Engine) -> None:
        """Take the suspicion off an engine that has just answered."""
        if engine.is_suspect:
            engine.is_suspect = False
            self._on_change()

    def show_load(self, engine: Engine, load: Load) -> None:
        """Note how busy a look has found an engine: it may be given more than before."""
        engine.load = load
        self._on_change()

    def enter(self, engine: Engine, state: State, waits_for: str | None) -> None:
        """Put an engine into a state that readiness has just found it in."""
        was_suspect, engine.is_suspect = engine.is_suspect, False
        engine.waits_for = waits_for
        if engine.state is not state:
            was = engine.state
            engine.state = state
            engine.since = time.time()
            self.show(engine)
            fields = {"engine": engine.label, "state": state.value, "was": was.value, "waits_for": waits_for}
            _log.info("engine state", extra={"fields": fields})
        elif not was_suspect:
            return
        self._on_change()
