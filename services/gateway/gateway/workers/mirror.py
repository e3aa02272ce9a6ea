"""A worker's side: it knows of the engines what the watcher knows, and tells it what happens to them here."""

import asyncio
from collections.abc import Callable

from gateway.upstreams import Engine
from gateway.workers.shared import Shared
from gateway.workers.truth import Truth

# What asks for a look may come in crowds.
PAUSE_SECONDS = 0.01
CHUNKS_EVERY_SECONDS = 0.25


class Mirror:
    """Follows the watcher; `on_change` is called whenever engines may have begun or ceased to take requests."""

    def __init__(self, shared: Shared, truth: Truth, on_change: Callable[[], None]) -> None:
        self._shared = shared
        self._truth = truth
        self._on_change = on_change
        self._version = 0
        self._tasks: dict[Engine, asyncio.Task[None]] = {}
        self._counting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with what is known now."""
        self._shared.bells.listen(self._shared.cells.row, self._hear)
        self._counting = asyncio.create_task(self._count_chunks())
        self._hear()

    async def stop(self) -> None:
        """Follow no more."""
        self._shared.bells.stop_listening(self._shared.cells.row)
        tasks = [*self._tasks.values(), *([self._counting] if self._counting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _hear(self) -> None:
        if self._version != self._shared.truth.version:
            self._version = self._shared.truth.version
            self._truth.read(self._shared.truth.get())
            known = set(self._truth.engines.values())
            for engine in self._tasks.keys() - known:
                self._tasks.pop(engine).cancel()
            for engine in known - self._tasks.keys():
                self._tasks[engine] = asyncio.create_task(self._pass_on(engine))
        # It may also be a place that has come free, or this worker's turn.
        self._on_change()

    async def _pass_on(self, engine: Engine) -> None:
        """Tell the watcher whenever something here asks for a look at an engine."""
        cells = self._shared.engines
        while engine.number is not None:
            await engine.attention.wait()
            engine.attention.clear()
            own = self._shared.cells.own
            own[cells.aborts + engine.number] += len(engine.unsettled_aborts)
            engine.unsettled_aborts.clear()
            own[cells.refusals + engine.number] += engine.is_suspect
            own[cells.doubts + engine.number] += engine.is_doubted
            engine.is_doubted = False
            own[cells.calls + engine.number] += 1
            self._shared.bells.ring(self._shared.watcher_row)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _count_chunks(self) -> None:
        """Tell every quarter of a second how much engines have sent here: work that moves."""
        cells = self._shared.engines
        while True:
            for number, engine in self._truth.engines.items():
                self._shared.cells.own[cells.chunks + number] += engine.chunks_received
                engine.chunks_received = 0
            await asyncio.sleep(CHUNKS_EVERY_SECONDS)
