"""How long a killed Redis is felt: the time that operations took, second by second around its absence."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.process.chaos.client import Client, Operation
from tests.process.chaos.history import ANSWERED, Attempt, History
from tests.process.chaos.ledger import by_key
from tests.process.chaos.run import Plan, ask_last, carry_out
from tests.process.chaos.stage import stage
from tests.process.chaos.verdict import Violation, judge

SECONDS_BEFORE: Final = 3
SECONDS_AWAY: Final = 2
SECONDS_AFTER: Final = 6
PACE: Final = 100.0
"""Operations a second."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What an absence of the store has cost."""

    before: float
    """Seconds of the slowest hundredth of the operations before: from first asking to an answer."""
    after: Sequence[float]
    """The same for those begun in the first second after the return, in the second one, and so on."""
    keys: int
    violations: Sequence[Violation]

    def __str__(self) -> str:
        """In one line."""
        later = ", ".join(f"{seconds * 1000:.0f}" for seconds in self.after)
        return f"{self.keys} keys; p99 before {self.before * 1000:.0f} ms; second by second after the return: {later} ms"


async def outage(seed: int, directory: Path) -> Outage:
    """Kill the Redis of two proxies under load, start it again, and see how long it takes until all is as before."""
    history = History()
    client, operations = Client(seed, history), list[Operation]()
    plan = Plan(seed, SECONDS_BEFORE + SECONDS_AWAY + SECONDS_AFTER, 0, PACE, ("redis",), suffered={"": 1}, probed=0.0)
    async with stage(plan.stores, directory, {}) as built:
        assert built.redis is not None
        ending = asyncio.Event()
        working = asyncio.create_task(carry_out(plan, built, client, operations, lambda: not ending.is_set()))
        await asyncio.sleep(SECONDS_BEFORE)
        killed = time.monotonic()
        await asyncio.to_thread(built.redis.kill)
        await asyncio.sleep(SECONDS_AWAY)
        await asyncio.to_thread(built.redis.start)
        returned = time.monotonic()
        await asyncio.sleep(SECONDS_AFTER)
        ending.set()
        await working
        await ask_last(client, operations)
    took = [_took(attempts) for attempts in history.attempts.values()]
    after: defaultdict[int, list[float]] = defaultdict(list)
    for begun, seconds in took:
        if begun >= returned:
            after[int(begun - returned)].append(seconds)
    # The first second pays for connecting and compiling, and what begins shortly before the end meets the outage.
    before = [seconds for begun, seconds in took if killed - SECONDS_BEFORE + 1 <= begun < killed - 0.5]
    violations = judge(history, by_key(directory / "ledger")).violations
    return Outage(_p99(before), [_p99(after[second]) for second in range(SECONDS_AFTER)], len(operations), violations)


def _took(attempts: Sequence[Attempt]) -> tuple[float, float]:
    """When an operation was begun, and for how long its client had to ask; infinite where it gave up."""
    begun = min(attempt.begun for attempt in attempts)
    ends = [
        attempt.ended
        for attempt in attempts
        if attempt.answer is not None and attempt.answer.outcome in ANSWERED and "/last" not in attempt.name
    ]
    return begun, min(ends, default=math.inf) - begun


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[math.ceil(len(seconds) * 0.99) - 1] if seconds else math.inf
