"""What the operator sees while the stack starts: what changes, once, and how far the engine is."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from ops.errors import StackError
from ops.way import StackWay

if TYPE_CHECKING:
    from ops.stage import Stage

REPORT_EVERY_SECONDS = 15
BAR_CHARACTERS = 30
ASK_EVERY_SECONDS = 2  # in Docker each question is a process in the engine's container


class Waiting:
    """A context manager: in a terminal a line that moves, with a bar where there is progress, else a line a change."""

    def __init__(self, way: StackWay, console: Console) -> None:
        self._way = way
        self._console = console
        self._started_at = time.monotonic()
        self._line_at = self._started_at
        self._asked_at = -ASK_EVERY_SECONDS + self._started_at
        self._states: dict[str, str] = {}
        self._stage: Stage | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _BarWhereKnown(),
            TextColumn("{task.fields[remarks]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, share=None, remarks="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def report(self, reason: str) -> None:
        """Show what is new; `reason` is why the stack does not answer.

        Raises `StackError`, with its last words, if a service has given up.
        """
        self._show_states()
        self._ask_stage()
        stage = self._stage
        if stage is None or not stage.is_start:
            self._move(reason, None, "")
            self._repeat(reason)
        else:
            self._move(stage.name, stage.progress, stage.remarks)
            self._repeat(f"engine: {stage.words}")

    def _show_states(self) -> None:
        for service, state in self._way.states().items():
            if state.failed:
                words = "\n".join(f"  {line}" for line in self._way.last_words(service))
                raise StackError(f"{service} cannot start ({state.word}). Its last words:\n{words}")
            if self._states.get(service) != state.word:
                self._states[service] = state.word
                self._print(f"{service}: {state.word}")

    def _ask_stage(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < ASK_EVERY_SECONDS:
            return
        self._asked_at = now
        was, self._stage = self._stage, self._way.stage()
        is_new = self._stage is not None and (was is None or was.name != self._stage.name)
        if self._stage and is_new and not self._console.is_terminal:
            self._print(f"engine: {self._stage.words}")

    def _move(self, description: str, share: float | None, remarks: str) -> None:
        self._progress.update(
            self._task,
            description=f"{time.monotonic() - self._started_at:.0f} s: {description}",
            share=share,
            remarks=remarks,
        )

    def _repeat(self, line: str) -> None:
        """Say now and then where nothing moves that it goes on."""
        if not self._console.is_terminal and time.monotonic() - self._line_at > REPORT_EVERY_SECONDS:
            self._print(line)

    def _print(self, line: str) -> None:
        self._line_at = time.monotonic()
        self._console.print(f"  {self._line_at - self._started_at:5.0f} s  {line}", markup=False)


class _BarWhereKnown(ProgressColumn):
    """A bar, and nothing where no progress is known: a task of rich's cannot lose its total again."""

    def render(self, task: Task) -> RenderableType:
        """Return what stands in the column now."""
        share = task.fields["share"]
        return Text("") if share is None else ProgressBar(total=1.0, completed=share, width=BAR_CHARACTERS)
