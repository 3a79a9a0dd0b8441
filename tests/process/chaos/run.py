"""A run of the fault suite: operations come at a steady pace, faults as the schedule has them, then all is asked once more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.process.chaos.client import FAULTS, Client, Operation
from tests.process.chaos.history import Happening, History
from tests.process.chaos.ledger import by_key
from tests.process.chaos.schedule import Fault, draw
from tests.process.chaos.stage import LEASE, Stage, stage
from tests.process.chaos.verdict import Verdict, judge, story, twice

MOST_AT_ONCE: Final = 250
LAST_ASKING: Final = 60.0
"""Seconds in which every key must have come to something."""
TOLD_STORIES: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made of. `rate`: faults a second, `pace`: operations a second; `probed`: which part of them are probed."""

    seed: int
    seconds: float
    rate: float
    pace: float
    stores: Sequence[str] = ("redis", "sqlite")
    faults: Sequence[Fault] | None = None
    """Instead of what the seed draws."""
    suffered: Mapping[str, int] = field(default_factory=lambda: FAULTS)
    """What befalls requests at the upstream."""
    probed: float = 0.4
    replicas: int = 0
    """How many must have a write before it counts, where there are any."""
    until_twice: bool = False
    """End at the first key that has more than one effect, and ask nothing at the end."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has shown."""

    plan: Plan
    faults: Sequence[Fault]
    verdict: Verdict
    stories: Sequence[str]
    complaints: Sequence[str]

    def __str__(self) -> str:
        """Figures, violations, and the stories of the first of them."""
        verdict = self.verdict
        suffered = Counter(fault.verb for fault in self.faults)
        at_upstream = sum(count for what, count in verdict.upstream.items() if what.startswith("arrived "))
        lines = [
            f"seed {self.plan.seed}: {verdict.outcomes.total()} keys, {verdict.answers.total()} attempts",
            f"faults of processes and links: {len(self.faults)} ({_told(suffered)})",
            f"faults of requests at the upstream: {at_upstream}; effects: {verdict.upstream['effect']}",
            f"answers: {_told(verdict.answers)}",
            f"keys at the end: {_told(verdict.outcomes)}",
            f"violations: {len(verdict.violations)}",
            *map(str, verdict.violations[:50]),
            *self.complaints[:50],
            *self.stories,
        ]
        return "\n".join(lines)


async def run(plan: Plan, directory: Path, environment: Mapping[str, str] | None = None, *, tell: bool = False) -> Report:
    """Carry a plan out; `tell` prints every fault as it happens."""
    history = History()
    path = directory / "ledger"
    async with stage(plan.stores, directory, environment or {}, plan.replicas) as built:
        faults = plan.faults if plan.faults is not None else draw(plan.seed, built.targets(), plan.seconds, plan.rate)
        client = Client(plan.seed, history)
        operations: list[Operation] = []
        begun = time.monotonic()
        suffering = asyncio.create_task(_suffer(built, faults, begun, history, tell=tell))
        working = asyncio.create_task(carry_out(plan, built, client, operations, lambda: time.monotonic() - begun < plan.seconds))
        if plan.until_twice:
            while not working.done() and not twice(by_key(path)):
                await asyncio.wait((working,), timeout=0.5)
            for task in (working, suffering):
                task.cancel()
        await asyncio.gather(working, suffering, return_exceptions=plan.until_twice)
        if not plan.until_twice:
            await ask_last(client, operations)
    ledger = by_key(path)
    verdict = judge(history, ledger)
    broken = list(dict.fromkeys(violation.key for violation in verdict.violations))
    stories = [story(key, history, ledger.get(key, ())) for key in broken[:TOLD_STORIES]]
    return Report(plan, faults, verdict, stories, built.complaints())


async def _suffer(built: Stage, faults: Sequence[Fault], begun: float, history: History, *, tell: bool) -> None:
    """Let every fault happen at its time; those of one target one after the other."""
    turns: dict[str, asyncio.Lock] = {}

    async def suffer(fault: Fault) -> None:
        async with turns.setdefault(fault.target, asyncio.Lock()):
            history.happenings.append(Happening(time.monotonic(), str(fault)))
            if tell:
                print(fault, flush=True)  # noqa: T201 - the command's result
            await built.suffer(fault)
            history.happenings.append(Happening(time.monotonic(), f"{fault} is over"))

    async with asyncio.TaskGroup() as group:
        for fault in faults:
            await asyncio.sleep(begun + fault.at - time.monotonic())
            group.create_task(suffer(fault))


async def carry_out(plan: Plan, built: Stage, client: Client, operations: list[Operation], goes_on: Callable[[], bool]) -> None:
    """Let operations come at the plan's pace, for as long as it `goes_on`, and each last until its client has had enough."""
    random = Random(f"{plan.seed} operations {len(operations)}")  # noqa: S311 - a schedule, not a secret
    room = asyncio.Semaphore(MOST_AT_ONCE)
    begun, before = time.monotonic(), len(operations)

    async def carry_out_one(operation: Operation) -> None:
        try:
            await client.carry_out(operation)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        while goes_on():
            store = plan.stores[len(operations) % len(plan.stores)]
            route = "probe" if random.random() < plan.probed else "hold"
            key = f"{route}-{store}-{plan.seed}-{len(operations)}"
            await room.acquire()
            operations.append(Operation(key, route, built.stores[store], dict(plan.suffered)))
            group.create_task(carry_out_one(operations[-1]))
            await asyncio.sleep(begun + (len(operations) - before) / plan.pace - time.monotonic())


async def ask_last(client: Client, operations: Sequence[Operation]) -> None:
    """Ask for every key once more, when all leases are over, so that each has come to something."""
    await asyncio.sleep(LEASE)
    room = asyncio.Semaphore(MOST_AT_ONCE // 4)

    async def ask(operation: Operation) -> None:
        async with room:
            await client.ask_last(operation, LAST_ASKING)

    async with asyncio.TaskGroup() as group:
        for operation in operations:
            group.create_task(ask(operation))


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common())
