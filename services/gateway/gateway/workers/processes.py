"""The processes' CPU time, memory and files, as those of one."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.workers.shared import Shared

# Times of the children that are gone, in /proc/PID/stat behind the name.
_GONE_CHILDREN = slice(13, 15)
_ONE = "process_start_time_seconds"
_CPU = "process_cpu_seconds"


class Processes(Collector):
    """Sums over all of them; the start is that of the first, and CPU time includes that of processes that are gone.

    Memory that they have in common counts for each.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def collect(self) -> Iterable[Metric]:
        """Return what prometheus_client's own collector does."""
        sums: dict[str, Metric] = {}
        for pid in self._shared.pids:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                first = sums.setdefault(metric.name, metric)
                if first is not metric and metric.name != _ONE:
                    _add(first, metric.samples[0].value)
        if _CPU in sums:
            _add(sums[_CPU], _seconds_of_the_gone(self._shared.parent))
        return sums.values()


def _add(metric: Metric, by: float) -> None:
    [sample] = metric.samples
    metric.samples = [sample._replace(value=sample.value + by)]


def _seconds_of_the_gone(parent: int) -> float:
    fields = Path(f"/proc/{parent}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return sum(map(int, fields[_GONE_CHILDREN])) / os.sysconf("SC_CLK_TCK")
