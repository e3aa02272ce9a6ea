"""What may end a request from outside while it waits: its client leaves, or the gateway stops."""

from asyncio import Task
from types import TracebackType
from typing import Any, Self

from gateway.errors import ClientDisconnected, ShuttingDown
from gateway.schemas import Line


class Watch:
    """Interrupts its task with a reason: inside the block, that reason is raised wherever it waits."""

    __slots__ = ("_line", "_open", "_reason", "_siblings", "_task")

    def __init__(self, task: Task[Any], line: Line, siblings: "set[Watch]") -> None:
        self._task = task
        self._line = line
        self._siblings = siblings
        self._reason: Exception | None = None
        self._open = False

    def __enter__(self) -> Self:
        self._open = True
        self._siblings.add(self)
        self._line.when_gone(self._client_left)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._reason is not None and self._task.uncancel() == 0:
            raise self._reason from None

    def interrupt(self, reason: Exception) -> None:
        """End the block with `reason`, once; without effect when it has been stopped."""
        if self._open:
            self._open = False
            self._reason = reason
            self._task.cancel()

    def stop(self) -> None:
        """Interrupt nothing from here on: the last bytes are about to leave."""
        self._open = False
        self._siblings.discard(self)
        self._line.when_gone(None)

    def _client_left(self) -> None:
        self.interrupt(ClientDisconnected())


class InFlight:
    """The requests that are being relayed now."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, task: Task[Any], line: Line) -> Watch:
        """Return the block in which a request is relayed, by this task."""
        return Watch(task, line, self._watches)

    def end_all(self) -> None:
        """End every request: streams with one error event, the others with 503."""
        for watch in list(self._watches):
            watch.interrupt(ShuttingDown())
