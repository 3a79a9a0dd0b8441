"""Markdown as GitHub shows it: tables, code, and the anchors of headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

NOTHING: Final = "\N{EN DASH}"
"""What stands in a cell that has nothing to say."""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell holds one line."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(text: object) -> str:
    """Text as it stands in a program or a file."""
    return f"`{text}`"


def listed(texts: Iterable[object]) -> str:
    """Some pieces of code; a dash for none."""
    return ", ".join(map(code, texts)) or NOTHING


def mermaid(lines: Iterable[str]) -> str:
    """A diagram."""
    return "\n".join(["```mermaid", *lines, "```", ""])


def anchor(heading: str) -> str:
    """What a link to a heading names: lower case, without punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
