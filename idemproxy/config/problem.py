"""What is wrong with a configuration: each problem with its place, its path, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Trail: TypeAlias = tuple[str | int, ...]
"""The way from the top of a configuration to one value: keys of mappings, places in lists."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: a file and its line, or (line None) a flag or a variable of the environment."""

    origin: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `text` says what, and what to do."""

    place: Place
    trail: Trail
    text: str

    def __str__(self) -> str:
        """`file:line: path: text`; a flag or variable names itself and needs no path."""
        if self.place.line is None:
            return f"{self.place.origin}: {self.text}"
        path = f"{show_trail(self.trail)}: " if self.trail else ""
        return f"{self.place.origin}:{self.place.line}: {path}{self.text}"


class ConfigurationError(Exception):
    """The configuration cannot be used; `problems` holds everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.place.line or 0))
        super().__init__("\n".join(map(str, self.problems)))


def show_trail(trail: Trail) -> str:
    """`routes[2].match.path`."""
    shown = ""
    for step in trail:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}" if shown else step
    return shown


def either(words: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """` (did you mean 'x'?)` with the nearest of the known words, or nothing when none is near."""
    nearest = difflib.get_close_matches(given, [str(word) for word in known], n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""
