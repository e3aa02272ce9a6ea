"""What the workers tell one another of those that run and wait, so that they keep one limit and share it."""

from types import TracebackType

from gateway.cells import Cells
from gateway.workers.bells import Bells
from gateway.workers.lock import Lock


class Crowd:
    """The requests of all workers; a context in which what is read stays true.

    Of workers that have requests waiting, the one goes first whose clients have the fewest places each.
    """

    def __init__(self, cells: Cells, bells: Bells) -> None:
        self._cells = cells
        self._bells = bells
        self._lock = Lock()
        self._running = cells.columns(level=True)
        self._waiting = cells.columns(level=True)
        self._clients = cells.columns(level=True)

    @property
    def running(self) -> int:
        """How many run at all engines."""
        return int(self._cells.total(self._running))

    @property
    def waiting(self) -> int:
        """How many wait."""
        return int(self._cells.total(self._waiting))

    def tell(self, running: int, waiting: int, clients: int) -> None:
        """Say how many requests this worker has, and of how many clients."""
        own = self._cells.own
        own[self._running], own[self._waiting], own[self._clients] = running, waiting, clients

    def others_first(self) -> bool:
        """Tell whether the next place is another worker's."""
        first = self._first()
        return first is not None and self._places_each(first) < self._places_each(self._cells.row)

    def call(self) -> None:
        """Wake the other worker that goes first, if any waits."""
        first = self._first()
        if first is not None:
            self._bells.ring(first)

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def _first(self) -> int | None:
        waiting = self._cells.of(self._waiting)
        rows = [row for row, number in enumerate(waiting) if number and row != self._cells.row]
        return min(rows, key=self._places_each, default=None)

    def _places_each(self, row: int) -> float:
        return self._cells.of(self._running)[row] / max(1.0, self._cells.of(self._clients)[row])
