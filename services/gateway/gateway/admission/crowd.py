"""What admission has to know of the gateway's other processes."""

from types import TracebackType
from typing import Protocol


class Crowd(Protocol):
    """The requests of all processes; a context in which what is read stays true."""

    @property
    def running(self) -> int:
        """How many run at all engines."""

    @property
    def waiting(self) -> int:
        """How many wait."""

    def tell(self, running: int, waiting: int, clients: int) -> None:
        """Say how many requests this process has, and of how many clients."""

    def others_first(self) -> bool:
        """Tell whether the next place is another process's."""

    def call(self) -> None:
        """Wake the other process that goes first, if any waits."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Alone:
    """The requests of the only process."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0

    def tell(self, running: int, waiting: int, clients: int) -> None:  # noqa: ARG002
        """Keep them."""
        self.running, self.waiting = running, waiting

    def others_first(self) -> bool:
        """Tell that it is ours."""
        return False

    def call(self) -> None:
        """Wake nobody."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
