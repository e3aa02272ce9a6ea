"""When an engine's process began, by which a restarted one is told from the one before."""

from gateway.readiness.counters import Counters
from gateway.upstreams import Engine


class ProcessStart:
    """By the engine's own metrics, or where they do not say, by its launcher's word; 0.0 where neither says.

    vLLM's Rust front end and its servers of several processes have no `process_start_time_seconds`. The two are never
    compared with each other: they differ by the time that a process takes to come up.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own = 0.0
        self._told = 0.0

    @property
    def at(self) -> float:
        """The start of the process that was proved last, in Unix time."""
        return self._own or self._told

    @property
    def told(self) -> float:
        """What the launcher says now."""
        told = self._engine.told
        return (told.started_at if told else None) or 0.0

    def note(self, counters: Counters | None) -> bool:
        """Take down what is known of an engine that is being proved; return whether it is another process now."""
        was = self.at
        self._own = counters.started_at if counters else 0.0
        self._told = self.told or self._told
        return self.at != was

    def has_changed(self, counters: Counters | None) -> bool:
        """Tell whether another process answers than the one that was proved."""
        own = counters.started_at if counters else 0.0
        if own or self._own:
            is_other = bool(own and self._own and own != self._own)
            # The page could not be had while the engine was proved.
            self._own = self._own or own
            return is_other
        if self.told and self._told:
            return self.told != self._told
        self._told = self._told or self.told
        return False
