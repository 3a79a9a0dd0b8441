"""Series as plain numbers, and the families that a scrape makes of them.

The library's own counters take a lock for each step, and its histograms go through their buckets: together a tenth of what a
request costs. All counting here happens on the event loop, so that numbers do; a scrape only reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final, TypeAlias, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Kind = TypeVar("Kind")

Labels: TypeAlias = tuple[str, ...]
"""The values of a series' labels, in the order of their names."""


Known: TypeAlias = Callable[[], Iterable[Labels]]
"""The labels of all series of a family, in the order of the page; it may be called at any time."""


class Number:
    """A counter, to be added to, or a gauge, to be set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """Durations, by the first of the `bounds`, which rise, that is not below them; the last count is of what is above all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Series(dict[Labels, Kind]):
    """Series by their labels, each made when it is first asked for: of thousands of routes most are quiet."""

    def __init__(self, make: Callable[[], Kind], known: Known) -> None:
        super().__init__()
        self._make = make
        self._known = known

    def __missing__(self, labels: Labels) -> Kind:
        made = self[labels] = self._make()
        return made

    def shown(self) -> Iterator[tuple[Labels, Kind]]:
        """All of them, whether they were made yet or not; to be read only."""
        unmade = self._make()
        return ((labels, self.get(labels, unmade)) for labels in self._known())


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    documentation: str
    labels: Sequence[str]
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily]
    series: Series[Number]

    def metric(self) -> Metric:
        metric = self.make(self.name, self.documentation, labels=self.labels)
        for labels, number in self.series.shown():
            metric.add_metric(labels, number.value)
        return metric


@dataclass(frozen=True, slots=True)
class _HistogramFamily:
    name: str
    documentation: str
    labels: Sequence[str]
    bounds: Sequence[float]
    series: Series[Histogram]

    def metric(self) -> Metric:
        metric = HistogramMetricFamily(self.name, self.documentation, labels=self.labels)
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        for labels, histogram in self.series.shown():
            metric.add_metric(labels, [*zip(names, accumulate(histogram.counts), strict=True)], histogram.total)
        return metric


class Families(Collector):
    """All families, in the order in which they were made. Each is told its series when it is made, and shows all of them."""

    def __init__(self) -> None:
        self._families: list[_Family | _HistogramFamily] = []

    def counters(self, name: str, documentation: str, labels: Sequence[str], known: Known) -> Series[Number]:
        """A family of counters; its name on the page ends with `_total`."""
        return self._made(_Family(name, documentation, labels, CounterMetricFamily, Series(Number, known)))

    def gauges(self, name: str, documentation: str, labels: Sequence[str], known: Known) -> Series[Number]:
        """A family of gauges."""
        return self._made(_Family(name, documentation, labels, GaugeMetricFamily, Series(Number, known)))

    def histograms(
        self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float], known: Known
    ) -> Series[Histogram]:
        """A family of histograms with the same bounds."""
        family = _HistogramFamily(name, documentation, labels, bounds, Series(partial(Histogram, bounds), known))
        self._families.append(family)
        return family.series

    def _made(self, family: _Family) -> Series[Number]:
        self._families.append(family)
        return family.series

    def collect(self) -> Iterator[Metric]:
        """As the library asks for it, at each scrape."""
        return (family.metric() for family in self._families)
