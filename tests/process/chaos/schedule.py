"""What is done to processes and links, and when: drawn from a seed, so that a run can be told and repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, and for how many seconds, at least and at most, it lasts; `weight` says how often it is drawn."""

    verb: str
    weight: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `at` seconds from the beginning, for `seconds`."""

    at: float
    verb: str
    target: str
    seconds: float

    def __str__(self) -> str:
        """In one line."""
        return f"{self.at:7.2f}  {self.verb} {self.target} for {self.seconds:.2f} s"


KILL: Final = "kill"
STOP: Final = "stop"
CUT: Final = "cut"
LOSE: Final = "lose a reply of"
FAIL_OVER: Final = "kill the primary of"
LAG: Final = "keep a replica behind, and kill the primary of"
DEPOSE: Final = "stop the primary of"

# A stop may be longer than the lease (3 s), and is shorter than the lease and the probes' settle time (5 s) together: what
# happens beyond that only the upstream can know. An upstream, or a store, is never away for longer than settle.
PROXY: Final = (Kind(KILL, 3, 0.0, 0.5), Kind(STOP, 3, 0.2, 4.5))
UPSTREAM: Final = (Kind(KILL, 1, 0.1, 1.0), Kind(STOP, 1, 0.2, 2.0))
REDIS: Final = (Kind(KILL, 1.5, 0.1, 3.0), Kind(STOP, 1.5, 0.2, 4.0), Kind(CUT, 4, 0.0, 0.0), Kind(LOSE, 8, 0.0, 0.0))
TOPOLOGY: Final = (Kind(FAIL_OVER, 1, 0.2, 1.0), Kind(DEPOSE, 1, 0.2, 1.0))
"""The time is from the failover until the old primary runs again."""
RECOVERY: Final = 0.5
"""Seconds between the end of a fault and the next one of the same target."""


def draw(seed: int, targets: Mapping[str, Sequence[Kind]], seconds: float, rate: float) -> list[Fault]:
    """Faults for so many seconds, `rate` a second if the targets are enough; no target has two at a time."""
    random = Random(f"{seed} schedule")  # noqa: S311 - a schedule, not a secret
    free = dict.fromkeys(targets, 0.0)
    faults: list[Fault] = []
    at = 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        choices = [(target, kind) for target, kinds in targets.items() if free[target] <= at for kind in kinds]
        if choices:
            target, kind = random.choices(choices, [kind.weight for _, kind in choices])[0]
            fault = Fault(at, kind.verb, target, random.uniform(kind.least, kind.most))
            free[target] = at + fault.seconds + (RECOVERY if kind.most else 0.05)
            faults.append(fault)
    return faults
