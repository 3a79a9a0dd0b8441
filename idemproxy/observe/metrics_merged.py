"""The metrics of several processes as those of one: each tells its values, and these are added up, series by series.

All of them have made the same series in the same order, so that a row of values says it all.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from idemproxy.observe.metrics import RESTARTS, Metrics

Row: TypeAlias = Sequence[float]
"""The value of each series."""

_COUNTS: Final = frozenset({"counter", "histogram"})
"""What only grows, and so is not taken back when its process dies."""

_RULES: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {
    "idemproxy_store_up": min,
    "idemproxy_store_findings": max,
    "idemproxy_drain_deadline_timestamp_seconds": max,
    "idemproxy_reload_failed": max,
    "process_start_time_seconds": min,
    "python_info": max,
}
"""How one value is made of several; the others are sums."""


def row(metrics: Metrics) -> array[float]:
    """The values of one process, as they are now; takes some microseconds for each."""
    return array("d", (sample.value for family in metrics.families() for sample in family.samples))


class Tally:
    """What one process tells: its own values, and what was counted before it by those whose place it has taken.

    `before` is what the last of them told, if it told anything. Of restarts each process is told the whole count.
    """

    def __init__(self, metrics: Metrics, before: bytes) -> None:
        self._metrics = metrics
        kept = [family.type in _COUNTS and family.name != RESTARTS for family in metrics.families() for _sample in family.samples]
        counted = read_row(before) or array("d", bytes(8 * len(kept)))
        self._before = array("d", (value if is_kept else 0.0 for value, is_kept in zip(counted, kept, strict=True)))

    def told(self) -> bytes | None:
        """The row as it is passed on; None where not every series could be read, as when there are no descriptors left."""
        now = row(self._metrics)
        if len(now) != len(self._before):
            return None
        return array("d", map(float.__add__, now, self._before)).tobytes()


def read_row(told: bytes) -> array[float] | None:
    """What `Tally.told` made; None where nothing was told."""
    return array("d", told) if told else None


def merged_page(metrics: Metrics, living: Sequence[Row], gone: Sequence[Row]) -> tuple[bytes, str]:
    """The whole page and its content type; of the `gone` only what they have counted. `metrics` name the series. One is alive.

    Raises ValueError where one row has other series than the next, as when a process has no descriptors left to read its own.
    """
    return generate_latest(_Merged(metrics, living, gone)), CONTENT_TYPE_PLAIN_0_0_4


class _Merged(Collector):
    def __init__(self, metrics: Metrics, living: Sequence[Row], gone: Sequence[Row]) -> None:
        self._metrics = metrics
        self._living = living
        self._all = [*living, *gone]

    def collect(self) -> Iterator[Metric]:
        families = list(self._metrics.families())
        if {sum(len(family.samples) for family in families)} != {len(each) for each in self._all}:
            raise ValueError("the series of the workers differ")
        end = 0
        for family in families:
            start, end = end, end + len(family.samples)
            rows = self._all if family.type in _COUNTS else self._living
            columns = zip(*(each[start:end] for each in rows), strict=True)
            combine = _RULES.get(family.name, sum)
            added = copy(family)  # some are the library's own, of which there is one for all pages
            added.samples = [
                sample._replace(value=combine(column)) for sample, column in zip(family.samples, columns, strict=True)
            ]
            yield added
