"""What a series of samples proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import Final

from bench.soak.samples import Sample

_LEVELS: Final = {"fds": 0, "tasks": 0, "threads": 6}
"""By how much the last pause may exceed the first: the threads of a pool are started as they are needed."""
_FEW: Final = 10
_NONE_LEFT: Final = ("clients", "upstreams", "attempts")


@dataclass(frozen=True, slots=True)
class Growth:
    """Of memory, in MiB; `level` is what it is about."""

    name: str
    level: float
    growth: float

    def exceeds(self, mib: float, share: float) -> bool:
        """Whether it is more than that, or than that share of the level."""
        return self.growth > min(mib, share * self.level)

    def __str__(self) -> str:
        return f"{self.name}: about {self.level:.1f} MiB, growth {self.growth:+.2f} MiB"


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """The growth of what is held, between the pauses; and by a line through the samples of the traffic, over all of their time.

    The line begins as long after the first pause as that came after the start: what free memory the pause gave back is back then.
    That of what runs beside the proxy is drawn only where that has run all the time; and none through a few samples.
    """
    first, last = _pauses(samples)
    under_way = [sample for sample in samples if not sample.quiet and 2 * first.seconds < sample.seconds < last.seconds]
    series = {name: [getattr(sample, name) for sample in under_way] for name in ("mib", "workers")}
    seconds = [sample.seconds for sample in under_way]
    lines = [
        Growth(f"{name} under way", median(values), linear_regression(seconds, values).slope * (seconds[-1] - seconds[0]))
        for name, values in series.items()
        if all(values) and len(values) >= _FEW
    ]
    return [Growth("mib held", first.mib, last.mib - first.mib), *lines]


def held(samples: Sequence[Sample]) -> list[str]:
    """What is still there in the last pause, and was not in the first."""
    first, last = _pauses(samples)
    more = [name for name, slack in _LEVELS.items() if getattr(last, name) > getattr(first, name) + slack]
    left = [name for name in _NONE_LEFT if getattr(last, name)]
    return [f"{name}: {getattr(last, name)} in the last pause, {getattr(first, name)} in the first" for name in more + left]


def _pauses(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    first, *_, last = (sample for sample in samples if sample.quiet)
    return first, last
