"""One engine of a fleet: its process, what it prints, how far its start is, and whether it moves."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from launcher.command import Command
from launcher.supervision.board import Progress
from launcher.supervision.child import Child
from launcher.supervision.figures import is_idle, read_figures
from launcher.supervision.health import healthy
from launcher.supervision.output import Outlet, Output
from launcher.supervision.stages import Stage
from launcher.supervision.stall import StallWatch, Target

# Longest wait for its figures while it drains.
_READ_SECONDS = 1.0
# What a stalled engine's processes get to write where they stand.
_ABORT_SECONDS = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """One engine to run: its name in the log, its command, where it will listen, and how many sequences it runs.

    Of the last, None is vLLM's own default.
    """

    name: str
    command: Command
    host: str
    port: int
    sequences: int | None = None


class Engine:
    """A started engine; `end` must be called in the end."""

    def __init__(self, unit: Unit, progress: Progress, outlets: tuple[Outlet, Outlet], *, prefixed: bool) -> None:
        self.unit, self.progress = unit, progress
        self.began = time.monotonic()
        self.status: int | None = None
        self._watch: StallWatch | None = None
        progress.enter(Stage.STARTING)
        self.output = Output(progress.hear, f"{unit.name}: " if prefixed else "")
        self._child = Child(unit.command, piped=True)
        for stream, outlet in zip(self._child.streams, outlets, strict=True):
            if stream is not None:
                self.output.take(stream, outlet)

    @property
    def group(self) -> int:
        """Id of its process group, which is that of its first process."""
        return self._child.group

    @property
    def is_serving(self) -> bool:
        """Whether it has been healthy once and nobody has asked it to stop."""
        return self.progress.stage is Stage.SERVING

    def poll(self) -> int | None:
        """Exit code if it has ended."""
        if self.status is None:
            self.status = self._child.poll()
        if self.status is not None:
            self.progress.enter(Stage.ENDED)
        return self.status

    def try_health(self) -> bool:
        """Ask for its health while it starts; True and one line in the log at the first good answer."""
        if not healthy(self.unit.host, self.unit.port):
            return False
        self.progress.enter(Stage.SERVING)
        parts = ", ".join(f"{stage} {spent:.1f} s" for stage, spent in self.progress.times().items())
        log.info("%s: healthy after %.1f s (%s)", self.unit.name, time.monotonic() - self.began, parts)
        return True

    def watch(self, model: str, seconds: float, on_stall: Callable[[float], None]) -> None:
        """From now on `on_stall` is called, from a thread, if it has stood still for so many seconds."""
        self._watch = StallWatch(Target(self.unit.host, self.unit.port, model, seconds), on_stall)

    def announce_stop(self) -> None:
        """Tell whoever asks that it takes no more requests."""
        if self._watch is not None:
            self._watch.close()
        if self.status is None:
            self.progress.enter(Stage.STOPPING)

    def has_work(self) -> bool:
        """Whether requests are under way; one that is too busy to tell has some, one that has no figures none."""
        if self.poll() is not None:
            return False
        figures = read_figures((self.unit.host, self.unit.port), _READ_SECONDS)
        return figures is None or (bool(figures) and not is_idle(figures))

    def ask_to_end(self) -> None:
        """SIGTERM to its first process."""
        if self.poll() is None:
            self._child.ask_to_end()

    def abort(self) -> None:
        """Let its processes write where they stand, and kill them."""
        self._child.abort(_ABORT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill all its processes."""
        self.status = self._child.kill()
        self.progress.enter(Stage.ENDED)

    def end(self) -> None:
        """Make sure that nothing of it is left and that all it wrote has been read."""
        self.announce_stop()
        self._child.end_group()
        self.output.close()
        self.progress.enter(Stage.ENDED)
