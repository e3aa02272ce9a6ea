"""All that the gateway's processes share. It is made before they are, and each of them inherits it."""

import os

from gateway.cells import Cells
from gateway.workers.bells import Bells
from gateway.workers.crowd import Crowd
from gateway.workers.engines import EngineCells
from gateway.workers.lock import Lock
from gateway.workers.note import Note

# Models as engines list them, and the rest in a few hundred bytes for each engine.
TRUTH_BYTES = 8_388_608
SLIP_BYTES = 1024


class Shared:
    """For the watcher, which has the first row, and so many workers."""

    watcher_row = 0

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.parent = os.getpid()
        self.cells = Cells(1 + workers)
        self.bells = Bells(1 + workers)
        self.crowd = Crowd(self.cells, self.bells)
        self.engines = EngineCells(self.cells)
        self.truth = Note(TRUTH_BYTES)
        self.agreement_token = Note(SLIP_BYTES)
        self.agreement_finding = Note(SLIP_BYTES)
        self.log_lock = Lock()
        self._pid = self.cells.columns(level=True)
        self._open_answers = self.cells.columns(level=True)
        self._stops = self.cells.columns(level=True)
        self._serves = self.cells.columns(level=True)

    @property
    def pids(self) -> list[int]:
        """The processes that are there, the one that has started them first."""
        return [self.parent, *(int(pid) for pid in self.cells.of(self._pid) if pid)]

    def note_pid(self) -> None:
        """Say which process has this row."""
        self.cells.own[self._pid] = os.getpid()

    def note_serving(self) -> None:
        """Say that this process has come as far as serving."""
        self.cells.own[self._serves] = 1

    def has_served(self, row: int) -> bool:
        """Tell whether the process of a row has come so far."""
        return bool(self.cells.of(self._serves)[row])

    def tell_open_answers(self, number: int) -> float:
        """Say how many answers this process that is stopping has not finished; return how many all of them have not.

        One that has not begun to stop may have some.
        """
        own = self.cells.own
        own[self._open_answers], own[self._stops] = number, 1
        pids, stops = self.cells.of(self._pid), self.cells.of(self._stops)
        unheard = sum(1 for row, pid in enumerate(pids) if pid and not stops[row] and row != self.watcher_row)
        return self.cells.total(self._open_answers) + unheard

    def vacate(self, row: int) -> None:
        """Take away what a process that is gone had, and tell the others of the places."""
        self.cells.vacate(row)
        self.bells.ring_all()
