"""Putting engines into states: noted, logged, published, and told to whoever waits for one."""

import logging
import time
from collections.abc import Callable

from gateway.upstreams import Engine, Load, State

_log = logging.getLogger("gateway.readiness")


class Transitions:
    """The one place that changes an engine's state; `on_change` is called after each change, and around each look."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def begin_look(self, engine: Engine) -> None:
        """Note that a look begins."""
        engine.begin_look()
        self._on_change()

    def end_look(self, engine: Engine) -> None:
        """Note that a look is over."""
        engine.end_look()
        self._on_change()

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
            fields = {"engine": engine.label, "state": state.value, "was": was.value, "waits_for": waits_for}
            _log.info("engine state", extra={"fields": fields})
        elif not was_suspect:
            return
        self._on_change()
