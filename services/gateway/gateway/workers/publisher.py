"""The watcher's side: it tells the workers what it knows of the engines, and hears what happened to them there."""

import asyncio
import logging

from gateway.upstreams import Engine
from gateway.workers.shared import Shared
from gateway.workers.truth import Truth

_log = logging.getLogger("gateway.workers")


class Publisher:
    """Publishes once in a turn of the loop, however much changes in it."""

    def __init__(self, shared: Shared, truth: Truth) -> None:
        self._shared = shared
        self._truth = truth
        self._scheduled: asyncio.Handle | None = None
        self._is_started = False

    def start(self) -> None:
        """Take over what an earlier watcher knew, and begin."""
        self._truth.read(self._shared.truth.get())
        self._is_started = True
        self._shared.bells.listen(self._shared.cells.row, self._hear)
        self.changed()

    def stop(self) -> None:
        """Publish and hear nothing more."""
        self._is_started = False
        self._shared.bells.stop_listening(self._shared.cells.row)
        if self._scheduled:
            self._scheduled.cancel()

    def changed(self) -> None:
        """Publish soon; nothing in a process that is not the watcher."""
        if self._is_started and self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._publish_again)

    def publish(self) -> None:
        """Publish now."""
        try:
            self._shared.truth.put(self._truth.write())
        except ValueError as error:
            # The workers go on with what they know.
            _log.error("engines_unpublished", extra={"fields": {"reason": str(error)}})
        self._shared.bells.ring_all()

    def _publish_again(self) -> None:
        self._scheduled = None
        # Chunks that workers have received are no news of their own, but looks want to know of them.
        for number, engine in self._truth.engines.items():
            engine.chunks_received += self._shared.engines.news(self._shared.engines.chunks, number)
        self.publish()

    def _hear(self) -> None:
        for number, engine in self._truth.engines.items():
            self._hear_of(engine, number)

    def _hear_of(self, engine: Engine, number: int) -> None:
        cells = self._shared.engines
        for _ in range(cells.news(cells.aborts, number)):
            engine.note_abort()
        if cells.news(cells.refusals, number):
            engine.note_connect_fault()
            self.changed()
        if cells.news(cells.doubts, number):
            engine.note_doubt()
        if cells.news(cells.calls, number):
            engine.attention.set()
