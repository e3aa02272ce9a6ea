"""What the workers tell the watcher of an engine, by its number: how much of theirs it has, and what happened to it."""

from gateway.cells import Cells

# So many are known at a time; a number is given again only after all the others.
MOST_ENGINES = 256


class EngineCells:
    """The columns of all engines."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._work = cells.columns(MOST_ENGINES, level=True)
        # Counted up by workers; of these the watcher's own row holds how many it has dealt with.
        self.chunks = cells.columns(MOST_ENGINES)
        self.aborts = cells.columns(MOST_ENGINES)
        self.refusals = cells.columns(MOST_ENGINES)
        self.doubts = cells.columns(MOST_ENGINES)
        self.calls = cells.columns(MOST_ENGINES)

    def work_of(self, number: int) -> "SharedWork":
        """Return the requests that an engine has."""
        return SharedWork(self.cells, self._work + number)

    def news(self, first: int, number: int) -> int:
        """Return how much has been counted, in the watcher, since it was last asked for this column."""
        column = first + number
        dealt_with, *counted = self.cells.of(column)
        self.cells.own[column] = sum(counted)
        return int(sum(counted) - dealt_with)


class SharedWork:
    """The requests that an engine has from all workers."""

    def __init__(self, cells: Cells, column: int) -> None:
        self._cells = cells
        self._column = column

    def begin(self, number: int = 1) -> None:
        """Count so many more, of this process."""
        self._cells.own[self._column] += number

    def end(self, number: int = 1) -> None:
        """Count so many less, of this process."""
        self._cells.own[self._column] -= number

    def total(self) -> int:
        """Return how many there are."""
        return int(self._cells.total(self._column))
