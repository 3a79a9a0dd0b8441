"""What is wanted of a figure, and whether it was reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["aim", "floor", "missed"]


@dataclass(frozen=True, slots=True)
class Target:
    """`floor` must be reached, and `aim` is aimed at: the most that is wanted where less is better, else the least."""

    floor: float
    aim: float
    less_is_better: bool = False

    def verdict(self, value: float) -> Verdict:
        """What a value reaches."""
        sign = -1 if self.less_is_better else 1
        if sign * value >= sign * self.aim:
            return "aim"
        return "floor" if sign * value >= sign * self.floor else "missed"

    def told(self, value: float) -> str:
        """What is wanted, and what a value reaches, for people."""
        sign = "<=" if self.less_is_better else ">="
        return f"wanted {sign} {self.floor:g}, aim {sign} {self.aim:g}: {self.verdict(value)}"
