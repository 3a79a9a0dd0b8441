"""The rounds: each series in turn, at each number of connections, again and again; and what their figures come to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TypeAlias

from bench.lineup import Ratio, Series, Standing
from bench.load import Figures, Plan
from bench.machine import Cores, on


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
    effort: Effort, standing: Mapping[Series, Standing], cores: Cores, tell: Callable[[int, Cell], None]
) -> dict[Cell, list[Figures]]:
    """All rounds, interleaved; every other one in reverse, so that nobody always has the same neighbour. Raises FailedError."""
    cells = [(series, connections) for connections in effort.connections for series in standing]
    found: dict[Cell, list[Figures]] = {cell: [] for cell in cells}
    for number in range(effort.rounds):
        for cell in reversed(cells) if number % 2 else cells:
            tell(number, cell)
            series, connections = cell
            server = standing[series]
            plan = Plan(server.port, series.work, connections, effort.warm_up, effort.seconds, server.pid, server.support)
            found[cell].append(_load(plan, series, cores))
    return found


def _load(plan: Plan, series: Series, cores: Cores) -> Figures:
    with on(cores.load):
        words = [sys.executable, "-m", "bench.load", json.dumps(asdict(plan))]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise FailedError(f"{series} with {plan.connections} connections: the server did not answer as it should:\n{done.stderr}")
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
    """A cell's figures. Shares are of one core; `load_share` is of the core where the generator runs, all that runs there."""

    series: Series
    connections: int
    requests_per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    cpu_us_per_request: Spread
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
        server_share=Spread.of([f.server_cpu / f.seconds for f in rounds]),
        generator_share=Spread.of([f.generator_cpu / f.seconds for f in rounds]),
        load_share=Spread.of([(f.generator_cpu + more) / f.seconds for f, more in zip(rounds, beside, strict=True)]),
        server_mib=Spread.of([f.server_mib for f in rounds]),
    )


def _beside_load(series: Series, cores: Cores) -> bool:
    return cores.load == (cores.support if series == series.direct else cores.server)


def compared(rows: Mapping[Cell, Row], wanted: Sequence[Ratio]) -> dict[Ratio, tuple[float, float]]:
    """Each ratio whose two series were measured, at the most connections: by requests per second, and by processor time."""
    most = max((connections for _, connections in rows), default=0)
    pairs = {ratio: (rows.get((ratio.of, most)), rows.get((ratio.against, most))) for ratio in wanted}
    return {
        ratio: (
            of.requests_per_second.median / against.requests_per_second.median,
            against.cpu_us_per_request.median / of.cpu_us_per_request.median,
        )
        for ratio, (of, against) in pairs.items()
        if of is not None and against is not None
    }
