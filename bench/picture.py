"""The picture of a run: for each kind of work, a bar for each server, as long as its requests per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.lineup import SERVERS
from bench.load import Work
from bench.measure import Cell, Row
from bench.svg import COLOURS, FAINT, INK, Drawing

_PANELS: Final[tuple[tuple[str, tuple[Work, ...]], ...]] = (
    ("First writes", ("first", "write")),
    ("Replays", ("replay",)),
    ("Reads, passed on", ("read",)),
)
_OURS: Final = frozenset({"redis", "sqlite"})
_PEERS: Final = frozenset(server.name for server in SERVERS if server.is_peer)
_WIDTH, _NAMES, _FIGURES, _BAR, _HEAD = 760.0, 180.0, 90.0, 22.0, 34.0


def bars(rows: Mapping[Cell, Row]) -> str:
    """The picture as SVG, at the most connections that were measured; a thin line shows the range of the rounds."""
    most = max((connections for _, connections in rows), default=0)
    there = [row for row in rows.values() if row.connections == most and row.series != row.series.direct]
    panels = [(title, sorted((row for row in there if row.series.work in works), key=_rate)) for title, works in _PANELS]
    panels = [(title, lines[::-1]) for title, lines in panels if lines]
    height = _HEAD + sum(_HEAD + _BAR * len(lines) for _, lines in panels) + 12
    title = f"Requests per second, one core, {most} connections"
    drawing = Drawing(_WIDTH, height, title)
    drawing.text((16, 22), title, bold=True)
    top = _HEAD
    for name, lines in panels:
        drawing.text((16, top + 22), name, bold=True)
        top += _HEAD
        for line in lines:
            _bar(drawing, top, line, max(each.requests_per_second.high for each in lines))
            top += _BAR
    return str(drawing)


def _rate(row: Row) -> float:
    return row.requests_per_second.median


def _bar(drawing: Drawing, top: float, row: Row, longest: float) -> None:
    """`longest`: the rate that is as long as there is room."""
    name, rate, scale = row.series.server, row.requests_per_second, (_WIDTH - _NAMES - _FIGURES) / longest
    middle = top + _BAR / 2
    label = f"idemproxy, {name}" if name in _OURS else name
    drawing.text((_NAMES - 8, middle + 4), label, anchor="end", bold=name in _OURS)
    drawing.box((_NAMES, top + 3), (rate.median * scale, _BAR - 6), COLOURS[0] if name in _OURS else _colour(name))
    drawing.line([(_NAMES + rate.low * scale, middle), (_NAMES + rate.high * scale, middle)], INK)
    drawing.text((_NAMES + rate.high * scale + 6, middle + 4), f"{rate.median:,.0f}")


def _colour(name: str) -> str:
    return COLOURS[1] if name in _PEERS else FAINT
