"""Pictures as SVG, written by hand: a drawing that grows by lines, rectangles and words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, Literal, TypeAlias

Anchor: TypeAlias = Literal["start", "middle", "end"]

INK: Final = "#1f2328"
FAINT: Final = "#8c959f"
COLOURS: Final = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")


class Drawing:
    """A white sheet of so many pixels, with its origin at the upper left."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/><g font-family="system-ui, sans-serif" font-size="12">',
        ]

    def text(
        self, at: tuple[float, float], words: str, *, anchor: Anchor = "start", colour: str = INK, bold: bool = False
    ) -> None:
        """Words whose base line is at the point."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'
        )

    def box(self, at: tuple[float, float], size: tuple[float, float], colour: str) -> None:
        """A filled rectangle; `at` is its upper left corner."""
        self._parts.append(
            f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" rx="2" fill="{colour}"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> None:
        """A line through the points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def dot(self, at: tuple[float, float], colour: str) -> None:
        """A point of a curve."""
        self._parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3" fill="{colour}"/>')

    def __str__(self) -> str:
        return "\n".join((*self._parts, "</g></svg>", ""))
