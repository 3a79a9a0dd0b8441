"""The picture of a run: a bar for each server, as long as its requests per second, by kind of work; then a bar for memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench import memory
from bench.lineup import SERVERS
from bench.load import Work
from bench.measure import Cell, Row, Spread
from bench.report import Memory
from bench.svg import COLOURS, FAINT, INK, Drawing

_WORKS: Final[tuple[tuple[str, tuple[Work, ...]], ...]] = (
    ("First writes", ("first", "write")),
    ("Replays", ("replay",)),
    ("Reads, passed on", ("read",)),
)
_OURS: Final = {"redis": "Redis", "redis-2-workers": "Redis, 2 workers", "sqlite": "SQLite"}
_PEERS: Final = frozenset(server.name for server in SERVERS if server.is_peer)
_WIDTH, _NAMES, _FIGURES, _BAR, _HEAD = 780.0, 200.0, 90.0, 22.0, 34.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A name and a length; a thin line shows `low` to `high`."""

    name: str
    long: Spread
    colour: str
    is_ours: bool = True


def bars(rows: Mapping[Cell, Row], resident: Memory | None = None) -> str:
    """The picture as SVG, at the most connections that were measured."""
    most = max((connections for _, connections in rows), default=0)
    there = [row for row in rows.values() if row.connections == most and row.series != row.series.direct]
    panels = [
        (f"{title}: requests per second, {most} connections", _by_rate([row for row in there if row.series.work in works]))
        for title, works in _WORKS
    ]
    if resident is not None:
        panels.append(("Resident memory on Redis, MiB; the line: what it may reach", _by_memory(resident)))
    panels = [(title, lines) for title, lines in panels if lines]
    height = sum(_HEAD + _BAR * len(lines) for _, lines in panels) + 12
    drawing = Drawing(_WIDTH, height, "idemproxy on one core, and what stands beside it")
    top = 0.0
    for title, lines in panels:
        drawing.text((16, top + 22), title, bold=True)
        top += _HEAD
        for line in lines:
            _draw(drawing, top, line, max(each.long.high for each in lines))
            top += _BAR
    return str(drawing)


def _by_rate(rows: Sequence[Row]) -> list[Bar]:
    """The fastest first."""
    fastest_first = sorted(rows, key=lambda row: row.requests_per_second.median, reverse=True)
    return [_server(row.series.server, row.requests_per_second) for row in fastest_first]


def _server(name: str, rate: Spread) -> Bar:
    if name in _OURS:
        return Bar(f"idemproxy, {_OURS[name]}", rate, COLOURS[0])
    return Bar(name, rate, COLOURS[1] if name in _PEERS else FAINT, is_ours=False)


def _by_memory(resident: Memory) -> list[Bar]:
    told = resident.amounts.told()
    return [
        Bar(told[name], Spread(mib, mib, max(mib, memory.TARGETS[name].floor)), COLOURS[0]) for name, mib in resident.mib.items()
    ]


def _draw(drawing: Drawing, top: float, bar: Bar, longest: float) -> None:
    """`longest`: the length for which there is room."""
    scale, middle = (_WIDTH - _NAMES - _FIGURES) / longest, top + _BAR / 2
    drawing.text((_NAMES - 8, middle + 4), bar.name, anchor="end", bold=bar.is_ours)
    drawing.box((_NAMES, top + 3), (bar.long.median * scale, _BAR - 6), bar.colour)
    drawing.line([(_NAMES + bar.long.low * scale, middle), (_NAMES + bar.long.high * scale, middle)], INK)
    drawing.text((_NAMES + bar.long.high * scale + 6, middle + 4), f"{bar.long.median:,.0f}")
