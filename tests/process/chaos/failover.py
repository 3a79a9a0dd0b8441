"""`python -m tests.process.chaos.failover`: what a failover costs, with and without confirmation by a replica.

Under load the primary is cut off from its replicas and killed (stage), time and again; each time another takes its place, and the
old one comes back as a replica, with no load until all is well again. Or the primary is stopped, and runs again as soon as
another has its place. At the end every key is asked for once more. Prints a table, and for how long one is felt that stands alone
and is killed and started again; exits with 1 for a loss where there must be none.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.process.chaos.client import Client, Operation
from tests.process.chaos.history import ANSWERED, Happening, History
from tests.process.chaos.ledger import by_key
from tests.process.chaos.outage import outage
from tests.process.chaos.run import TOLD_STORIES, Plan, ask_last, carry_out
from tests.process.chaos.schedule import DEPOSE, FAIL_OVER, LAG
from tests.process.chaos.stage import Stage, stage
from tests.process.chaos.verdict import Violation, forgotten, judge, story, twice

PACE: Final = 150.0
"""Operations a second."""
BEFORE: Final = 1.0
AFTER: Final = 1.0
"""Seconds of load before the primary is lost, and after another has its place."""
LOADED: Final = {"": 1}
"""Nothing befalls requests at the upstream: what is lost here the store has lost."""
HEADINGS: Final = (
    "store", "replicas", "the primary", "times", "keys", "answered", "forgotten", "effects twice", "ended unknown", "refused",
)  # fmt: skip


ROWS: Final = (
    ("sentinel", FAIL_OVER, 1),
    ("sentinel", FAIL_OVER, 0),
    ("sentinel", LAG, 1),
    ("sentinel", LAG, 0),
    ("sentinel", DEPOSE, 2),
    ("sentinel", DEPOSE, 1),
    ("sentinel", DEPOSE, 0),
    ("cluster", FAIL_OVER, 1),
    ("cluster", FAIL_OVER, 0),
    ("cluster", DEPOSE, 1),
    ("cluster", DEPOSE, 0),
)
_DONE: Final = {FAIL_OVER: "killed", LAG: "killed, a replica behind", DEPOSE: "stopped and woken"}
_ALL: Final = {"sentinel": 2, "cluster": 1}
"""The replicas of a primary."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What one store has lost in some failovers."""

    store: str
    replicas: int
    verb: str
    failovers: int
    keys: int
    answered: int
    """Keys of which some client was given the upstream's answer before the last question."""
    forgotten: int
    """Of these, keys whose answer the store did not know at the end."""
    twice: int
    """Keys with more than one effect in the upstream's ledger."""
    unknown: int
    """Keys whose last answer was that their outcome is unknown."""
    refused: int
    """Requests whose claim the store did not confirm: store-unavailable, nothing sent."""
    violations: Sequence[Violation]
    stories: Sequence[str]

    @property
    def is_safe(self) -> bool:
        """Whether nothing may be lost: a primary that is killed confirms nothing any more, one that wakes still may.

        A replica may follow it still that has not heard of the failover: only what all replicas confirm is with the new one too.
        """
        return self.replicas == _ALL[self.store] or (self.replicas > 0 and self.verb == FAIL_OVER)

    def cells(self) -> tuple[str, ...]:
        """A row of the table under HEADINGS."""
        figures = (self.failovers, self.keys, self.answered, self.forgotten, self.twice, self.unknown, self.refused)
        return self.store, str(self.replicas), _DONE[self.verb], *map(str, figures)


async def lose(store: str, replicas: int, verb: str, failovers: int, seed: int, directory: Path) -> Losses:
    """Let a store fail over so many times under load, and count."""
    history = History()
    client, operations = Client(seed, history), list[Operation]()
    plan = Plan(seed, 0, 0, PACE, (store,), suffered=LOADED, probed=0.0, replicas=replicas)
    async with stage(plan.stores, directory, {}, replicas) as built:
        working = [await _fail_over(plan, built, client, operations, history, verb) for _ in range(failovers)]
        await asyncio.gather(*working)
        await ask_last(client, operations)
    ledger = by_key(directory / "ledger")
    verdict = judge(history, ledger)
    broken = dict.fromkeys(violation.key for violation in verdict.violations)
    told = [attempt for attempts in history.attempts.values() for attempt in attempts if attempt.answer is not None]
    return Losses(
        store,
        replicas,
        verb,
        failovers,
        keys=len(operations),
        answered=len({each.key for each in told if each.answer and each.answer.outcome in ANSWERED and "/last" not in each.name}),
        forgotten=len(forgotten(history)),
        twice=len(twice(ledger)),
        unknown=verdict.outcomes["unknown"],
        refused=sum(1 for each in told if each.answer and each.answer.slug == "store-unavailable"),
        violations=verdict.violations,
        stories=[story(key, history, ledger.get(key, ())) for key in list(broken)[:TOLD_STORIES]],
    )


async def _fail_over(
    plan: Plan, built: Stage, client: Client, operations: list[Operation], history: History, verb: str
) -> asyncio.Task[None]:
    """One failover under load, and the peace after it, in which some of the clients may still ask: what they are about."""
    (store,) = plan.stores
    ending = asyncio.Event()
    working = asyncio.create_task(carry_out(plan, built, client, operations, lambda: not ending.is_set()))
    await asyncio.sleep(BEFORE)
    history.happenings.append(Happening(time.monotonic(), f"{verb} {store}"))
    old = await built.fail_over(store, verb)
    history.happenings.append(Happening(time.monotonic(), "another has its place"))
    if verb == DEPOSE:
        old.resume()  # under load: it takes itself for the primary still
    await asyncio.sleep(AFTER)
    ending.set()
    await built.bring_back(store, old, verb)
    history.happenings.append(Happening(time.monotonic(), "all is well"))
    return working


def table(rows: Sequence[Losses]) -> str:
    """As Markdown."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Read the arguments, let all fail over, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos.failover", description=__doc__)
    parser.add_argument("--sentinel", type=int, default=20, help="primaries killed with Sentinels (default: %(default)s)")
    parser.add_argument("--cluster", type=int, default=10, help="primaries killed in a cluster (default: %(default)s)")
    parser.add_argument("--few", type=int, default=5, help="how often everything else (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="draws the load (default: the clock)")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)  # noqa: T201 - the command's result
    times = {("sentinel", FAIL_OVER): options.sentinel, ("cluster", FAIL_OVER): options.cluster}
    rows: list[Losses] = []
    for store, verb, replicas in ROWS:
        if failovers := times.get((store, verb), options.few):
            with tempfile.TemporaryDirectory(prefix="idemproxy-failover-") as directory:
                rows.append(asyncio.run(lose(store, replicas, verb, failovers, options.seed, Path(directory))))
            print(table(rows[-1:]).splitlines()[-1], flush=True)  # noqa: T201 - as above
    with tempfile.TemporaryDirectory(prefix="idemproxy-failover-") as directory:
        felt = asyncio.run(outage(options.seed, Path(directory)))
    broken = [row for row in rows if row.is_safe and row.violations]
    told = [text for row in broken for text in (*map(str, row.violations), *row.stories)]
    told += map(str, felt.violations)
    print("\n".join(["", table(rows), "", f"A Redis that is killed and started again: {felt}", *told]))  # noqa: T201 - as above
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
