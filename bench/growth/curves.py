"""What is found, as curves; how steep they are, and their picture on two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.report import wanted
from bench.svg import COLOURS, FAINT, Drawing
from bench.targets import Target

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 460.0, 300.0, 62.0, 46.0, 74.0, 20.0
_SLACK: Final = {"ms": 0.02, "µs": 20.0, "MiB": 1.0, "s": 0.2}
"""By unit, how much two figures differ that may be the same."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What something costs, by how much of something else there is: `points` as (amount, cost), the amounts growing.

    `target`: what is wanted of `growth`, if anything is.
    """

    question: str
    name: str
    unit: str
    points: tuple[tuple[int, float], ...]
    target: Target | None = None

    @property
    def growth(self) -> float:
        """The cost at the most by that at the least."""
        return self.points[-1][1] / self.points[0][1]

    @property
    def steepest(self) -> float:
        """The exponent of the steepest step between amounts above 0; 0 where no step is more than slack."""
        steps = [(early, late) for early, late in pairwise(self.points) if early[0] and late[1] - early[1] > _SLACK[self.unit]]
        return max((math.log(late[1] / early[1]) / math.log(late[0] / early[0]) for early, late in steps), default=0.0)

    def values(self) -> dict[str, object]:
        """All of it as JSON values."""
        points = {"question": self.question, "name": self.name, "unit": self.unit, "points": self.points}
        return points | {"growth": self.growth, "steepest": self.steepest, **wanted(self.target, self.growth)}


def picture(curves: Sequence[Curve], axes: dict[str, str]) -> str:
    """A panel for each question and unit; `axes` has what a question's amounts are."""
    panels: dict[tuple[str, str], list[Curve]] = {}
    for curve in curves:
        panels.setdefault((curve.question, curve.unit), []).append(curve)
    rows = math.ceil(len(panels) / 2)
    drawing = Drawing(2 * _WIDTH, rows * _HEIGHT, "How cost grows")
    for place, ((question, unit), mine) in enumerate(panels.items()):
        _panel(drawing, (place % 2 * _WIDTH, place // 2 * _HEIGHT), f"{unit}, by {axes[question]}", mine)
    return str(drawing)


def _panel(drawing: Drawing, corner: tuple[float, float], title: str, curves: Sequence[Curve]) -> None:
    amounts = sorted({amount for curve in curves for amount, _ in curve.points})
    costs = [cost for curve in curves for _, cost in curve.points]
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    most = math.log10(max(amounts) + 1) or 1.0
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(amount: int) -> float:
        return corner[0] + _LEFT + math.log10(amount + 1) / most * wide

    def up(cost: float) -> float:
        return corner[1] + _HEIGHT - _BOTTOM - (math.log10(cost) - low) / max(1, high - low) * tall

    drawing.text((corner[0] + 16, corner[1] + 22), title, bold=True)
    for exponent in range(low, high + 1):
        cost = 10.0**exponent
        drawing.line([(across(0), up(cost)), (corner[0] + _WIDTH - _RIGHT, up(cost))], "#d0d7de")
        drawing.text((across(0) - 6, up(cost) + 4), f"{cost:g}", anchor="end", colour=FAINT)
    for amount in amounts:
        drawing.text((across(amount), corner[1] + _HEIGHT - _BOTTOM + 18), _short(amount), anchor="middle", colour=FAINT)
    for place, curve in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        drawing.text((corner[0] + 16 + place % 2 * 210, corner[1] + 40 + place // 2 * 15), curve.name, colour=colour)
        drawing.line([(across(amount), up(cost)) for amount, cost in curve.points], colour, 2)
        for amount, cost in curve.points:
            drawing.dot((across(amount), up(cost)), colour)


def _short(amount: int) -> str:
    for size, sign in ((2**20, "Mi"), (10**6, "M"), (2**10, "Ki"), (10**3, "k")):
        if amount >= size and amount % size == 0:
            return f"{amount // size}{sign}"
    return str(amount)
