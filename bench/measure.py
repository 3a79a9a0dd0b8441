"""The rounds: each series in turn, at each number of connections, again and again; and what their figures come to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TypeAlias

from bench.lineup import Ratio, Series, Server
from bench.load import Figures, Plan
from bench.machine import Cores, on
from bench.stage import Standing


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured; times in seconds."""

    rounds: int
    connections: tuple[int, ...]
    warm_up: float
    seconds: float


class FailedError(Exception):
    """A measurement that is worth nothing, since the server did not do what was asked; the message says what it did."""


Cell: TypeAlias = tuple[Series, int]
"""A series at a number of connections."""


def measure(
    effort: Effort,
    cells: Sequence[Cell],
    standing: Mapping[Series, tuple[Server, Standing]],
    cores: Cores,
    tell: Callable[[int, Cell], None],
) -> tuple[dict[Cell, list[Figures]], dict[str, str]]:
    """All rounds, interleaved; every other one in reverse, so that nobody always has the same neighbour. Raises FailedError.

    A series in which a peer answers wrongly is given up: the second result has its name, and what came.
    """
    found: dict[Cell, list[Figures]] = {cell: [] for cell in cells}
    failed: dict[str, str] = {}
    for number in range(effort.rounds):
        for cell in reversed(cells) if number % 2 else cells:
            series, connections = cell
            server, place = standing[series]
            if str(series) in failed:
                continue
            tell(number, cell)
            plan = Plan(
                place.port,
                series.work,
                connections,
                effort.warm_up,
                effort.seconds,
                place.processes,
                place.support,
                **asdict(server.signs),
            )
            try:
                found[cell].append(_load(plan, series, cores))
            except FailedError as exc:
                if not server.is_peer:
                    raise
                failed[str(series)] = str(exc)
    return {cell: rounds for cell, rounds in found.items() if str(cell[0]) not in failed}, failed


def _load(plan: Plan, series: Series, cores: Cores) -> Figures:
    with on(cores.load):
        words = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise FailedError(
            f"{series} with {plan.connections} connections: the server did not answer as it should:\n{done.stderr.strip()}"
        )
    return Figures(**json.loads(done.stdout))


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """A cell's figures. Shares are of one core; `load_share` is of the core where the generator runs, all that runs there.

    Of a server that is several processes and has two cores, what it uses of the load's is not known, and is not in that.
    """

    series: Series
    connections: int
    requests_per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    cpu_us_per_request: Spread
    kernel_us_per_request: Spread
    server_share: Spread
    generator_share: Spread
    load_share: Spread
    server_mib: Spread

    @property
    def is_load_bound(self) -> bool:
        """Whether the load was the limit, and not the server."""
        return self.load_share.median > 0.9


def row(cell: Cell, rounds: Sequence[Figures], cores: Cores) -> Row:
    """What the rounds of a cell come to."""
    series, connections = cell
    # The upstream called directly is both the server and, in the place of the support, beside the load.
    beside = [
        (f.support_cpu if cores.support == cores.load else 0) + (f.server_cpu if _beside_load(series, cores) else 0)
        for f in rounds
    ]
    return Row(
        series,
        connections,
        requests_per_second=Spread.of([f.requests / f.seconds for f in rounds]),
        p50_ms=Spread.of([f.p50_ms for f in rounds]),
        p99_ms=Spread.of([f.p99_ms for f in rounds]),
        cpu_us_per_request=Spread.of([f.server_cpu / f.requests * 1e6 for f in rounds]),
        kernel_us_per_request=Spread.of([f.server_kernel / f.requests * 1e6 for f in rounds]),
        server_share=Spread.of([f.server_cpu / f.seconds for f in rounds]),
        generator_share=Spread.of([f.generator_cpu / f.seconds for f in rounds]),
        load_share=Spread.of([(f.generator_cpu + more) / f.seconds for f, more in zip(rounds, beside, strict=True)]),
        server_mib=Spread.of([f.server_mib for f in rounds]),
    )


def _beside_load(series: Series, cores: Cores) -> bool:
    return cores.load == (cores.support if series == series.direct else cores.server)


def added_ms(rows: Mapping[Cell, Row], row: Row, quantile: str) -> float | None:
    """Latency beyond the direct call's, `quantile` being p50_ms or p99_ms; None for the direct call itself."""
    direct = rows.get((row.series.direct, row.connections))
    if direct is None or direct is row:
        return None
    added: float = getattr(row, quantile).median - getattr(direct, quantile).median
    return added


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a ratio came to, against which series; `by_cpu`: the same by processor time for each request."""

    value: float
    by_cpu: float | None
    against: Series


def compared(rows: Mapping[Cell, Row], wanted: Sequence[Ratio]) -> dict[Ratio, Comparison]:
    """Each ratio whose series were measured where it needs them."""
    numbers = [connections for _, connections in rows] or [0]
    made = {ratio: (_of_latencies if ratio.of_added_p50 else _of_rates)(rows, ratio, numbers) for ratio in wanted}
    return {ratio: comparison for ratio, comparison in made.items() if comparison is not None}


def _of_rates(rows: Mapping[Cell, Row], ratio: Ratio, numbers: Sequence[int]) -> Comparison | None:
    of = rows.get((ratio.of, max(numbers)))
    others = [other for series in ratio.against if (other := rows.get((series, max(numbers)))) is not None]
    if of is None or not others:
        return None
    best = max(others, key=lambda other: other.requests_per_second.median)
    rate = of.requests_per_second.median / best.requests_per_second.median
    return Comparison(rate, best.cpu_us_per_request.median / of.cpu_us_per_request.median, best.series)


def _of_latencies(rows: Mapping[Cell, Row], ratio: Ratio, numbers: Sequence[int]) -> Comparison | None:
    of, *others = (rows.get((series, min(numbers))) for series in (ratio.of, *ratio.against))
    added = None if of is None else added_ms(rows, of, "p50_ms")
    least = min(
        ((ms, other.series) for other in others if other and (ms := added_ms(rows, other, "p50_ms") or 0) > 0), default=None
    )
    return None if added is None or least is None else Comparison(added / least[0], None, least[1])
