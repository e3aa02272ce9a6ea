"""Prometheus series on shared cells: what any process has counted, whichever is asked.

prometheus_client's own metrics live in one process. Its multiprocess mode wants a folder, an environment variable
before the import, and metrics that are never removed or asked at a scrape.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.cells import Cells

# Label values, and the number of their series.
Samples = Iterable[tuple[Sequence[str], float]]


class Number:
    """One series that this process adds to."""

    __slots__ = ("_cells", "_column")

    def __init__(self, cells: Cells, column: int) -> None:
        self._cells = cells
        self._column = column

    def total(self) -> float:
        """Return what all processes together have counted."""
        return self._cells.total(self._column)

    def inc(self, by: float = 1.0) -> None:
        """Add to it."""
        self._cells.own[self._column] += by

    def set(self, value: float) -> None:
        """Let this process's part of a level be so much."""
        self._cells.own[self._column] = value

    def dec(self) -> None:
        """Take one away, from a level."""
        self._cells.own[self._column] -= 1.0


class Distribution:
    """A histogram's buckets and sum."""

    __slots__ = ("_bounds", "_cells", "_first")

    def __init__(self, cells: Cells, first: int, bounds: Sequence[float]) -> None:
        self._cells = cells
        self._first = first
        self._bounds = bounds

    def observe(self, value: float) -> None:
        """Count a value."""
        own = self._cells.own
        own[self._first + bisect_left(self._bounds, value)] += 1.0
        own[self._first + len(self._bounds) + 1] += value


class Series(Collector):
    """All the series of a page, in the order in which they were set up."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._families: list[Callable[[], Metric]] = []

    def collect(self) -> Iterable[Metric]:
        """Return every family, summed over the processes."""
        return [family() for family in self._families]

    def counters(
        self, name: str, text: str, labels: Sequence[str] = (), values: Iterable[tuple[str, ...]] = ((),)
    ) -> dict[tuple[str, ...], Number]:
        """Set a counter up, one series for each of the closed set of label values."""
        columns = {value: self._cells.columns() for value in values}

        def family() -> Metric:
            found = CounterMetricFamily(name, text, labels=labels)
            for value, column in columns.items():
                found.add_metric(value, self._cells.total(column))
            return found

        self._families.append(family)
        return {value: Number(self._cells, column) for value, column in columns.items()}

    def level(self, name: str, text: str) -> Number:
        """Set a gauge up that each process raises and lowers."""
        column = self._cells.columns(level=True)
        self.gauge(name, text, lambda: self._cells.total(column))
        return Number(self._cells, column)

    def flag(self, name: str, text: str) -> Number:
        """Set a gauge up that is 1 while it is set in any process."""
        column = self._cells.columns(level=True)
        self.gauge(name, text, lambda: self._cells.total(column) > 0)
        return Number(self._cells, column)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Set a gauge up whose value is asked at each scrape."""
        self._families.append(lambda: GaugeMetricFamily(name, text, value=value()))

    def gauges(self, name: str, text: str, labels: Sequence[str], samples: Callable[[], Samples]) -> None:
        """Set a gauge up whose series are asked at each scrape."""

        def family() -> Metric:
            found = GaugeMetricFamily(name, text, labels=labels)
            for value, number in samples():
                found.add_metric(value, number)
            return found

        self._families.append(family)

    def histogram(self, name: str, text: str, bounds: Sequence[float]) -> Distribution:
        """Set a histogram up with these upper bounds, and one without."""
        first = self._cells.columns(len(bounds) + 2)
        names = [*(str(floatToGoString(bound)) for bound in bounds), "+Inf"]  # type: ignore[no-untyped-call]

        def family() -> Metric:
            buckets, count = [], 0.0
            for place, bound in enumerate(names):
                count += self._cells.total(first + place)
                buckets.append((bound, count))
            found = HistogramMetricFamily(name, text)
            found.add_metric([], buckets, self._cells.total(first + len(names)))
            return found

        self._families.append(family)
        return Distribution(self._cells, first, bounds)
