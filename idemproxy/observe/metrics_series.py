"""Series as plain numbers, and the families that a scrape makes of them.

The library's own counters take a lock for each step, and its histograms go through their buckets: together a tenth of what a
request costs. All counting here happens on the event loop, so that numbers do; a scrape only reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels: TypeAlias = tuple[str, ...]
"""The values of a series' labels, in the order of their names."""


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


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    documentation: str
    labels: Sequence[str]
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily]
    series: dict[Labels, Number]

    def metric(self) -> Metric:
        metric = self.make(self.name, self.documentation, labels=self.labels)
        for labels, number in self.series.items():
            metric.add_metric(labels, number.value)
        return metric


@dataclass(frozen=True, slots=True)
class _HistogramFamily:
    name: str
    documentation: str
    labels: Sequence[str]
    bounds: Sequence[float]
    series: dict[Labels, Histogram]

    def metric(self) -> Metric:
        metric = HistogramMetricFamily(self.name, self.documentation, labels=self.labels)
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        for labels, histogram in self.series.items():
            metric.add_metric(labels, [*zip(names, accumulate(histogram.counts), strict=True)], histogram.total)
        return metric


class Families(Collector):
    """All families, in the order in which they were made. Each series is made with its family."""

    def __init__(self) -> None:
        self._families: list[_Family | _HistogramFamily] = []

    def counters(self, name: str, documentation: str, labels: Sequence[str], series: Iterable[Labels]) -> dict[Labels, Number]:
        """A family of counters; its name on the page ends with `_total`."""
        return self._made(_Family(name, documentation, labels, CounterMetricFamily, {each: Number() for each in series}))

    def gauges(self, name: str, documentation: str, labels: Sequence[str], series: Iterable[Labels]) -> dict[Labels, Number]:
        """A family of gauges."""
        return self._made(_Family(name, documentation, labels, GaugeMetricFamily, {each: Number() for each in series}))

    def histograms(
        self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float], series: Iterable[Labels]
    ) -> dict[Labels, Histogram]:
        """A family of histograms with the same bounds."""
        made = {each: Histogram(bounds) for each in series}
        self._families.append(_HistogramFamily(name, documentation, labels, bounds, made))
        return made

    def _made(self, family: _Family) -> dict[Labels, Number]:
        self._families.append(family)
        return family.series

    def collect(self) -> Iterator[Metric]:
        """As the library asks for it, at each scrape."""
        return (family.metric() for family in self._families)
