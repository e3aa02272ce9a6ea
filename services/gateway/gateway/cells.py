"""Numbers that the gateway's processes share: a row for each process, written by it alone, a column for each number.

The memory is there before the processes are, and outlives each of them: what was counted stays counted.
"""

import mmap

# Of one row: a hundred or two of metrics, and a few for each engine.
COLUMNS = 4096
_BYTES = 8


class Cells:
    """Rows of numbers; `own` is the row of this process, the first until it has sat down elsewhere."""

    def __init__(self, rows: int = 1) -> None:
        numbers = memoryview(mmap.mmap(-1, rows * COLUMNS * _BYTES)).cast("d")
        self._rows = [numbers[row * COLUMNS : (row + 1) * COLUMNS] for row in range(rows)]
        self._next = 0
        self._levels: list[int] = []
        self.row = 0
        self.own = self._rows[0]

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._rows)

    def columns(self, number: int = 1, *, level: bool = False) -> int:
        """Set columns apart and return the first; a `level` is what is there now, and goes with its process."""
        first, self._next = self._next, self._next + number
        if self._next > COLUMNS:
            raise ValueError(f"more than {COLUMNS} columns")
        if level:
            self._levels += range(first, self._next)
        return first

    def sit(self, row: int) -> None:
        """Make a row this process's own; what an earlier one has counted there is counted on."""
        self.row = row
        self.own = self._rows[row]

    def vacate(self, row: int) -> None:
        """Take down the levels of a process that is gone."""
        for column in self._levels:
            self._rows[row][column] = 0.0

    def of(self, column: int) -> list[float]:
        """Return a column's numbers, by row."""
        return [row[column] for row in self._rows]

    def total(self, column: int) -> float:
        """Return the sum of a column."""
        return sum(row[column] for row in self._rows)
