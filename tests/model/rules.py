"""The product's rules, as the model asks for them: each answer comes from `idemproxy.core`, is remembered, and has a number.

Nothing of the rules is written here a second time. A `Guard` names what can be taken away from them, to see that it is needed:
then the call, or its result, is bent here, around the real function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Final, Generic, TypeVar, assert_never, cast

from idemproxy.core import transition
from idemproxy.core.decision import Rule, decide
from idemproxy.core.outcome import AttemptResult, NeverSent, Settlement, Unsure, judge
from idemproxy.core.policy import OutcomeRule, Policy
from idemproxy.core.record import Phase, Record
from idemproxy.core.transition import Acted, Ask, Completion, Doubt, Ending, Found, Granted, Hold, Release, Settled

Value = TypeVar("Value")

TICK: Final = 100
"""Microseconds of the store's clock in a tick of the model."""
LEASE: Final = 2
"""Ticks for which a claim or a renewal is good."""
TRAVEL: Final = 1
"""Ticks for which bytes that have left may still be on their way."""
SETTLE: Final = 2
"""Ticks after which a probe that finds nothing is sure: more than TRAVEL."""
NEVER: Final = 10**9
"""Microseconds that the model does not live: what is completed does not expire."""

FINGERPRINT: Final = "v1:same"
"""All requests ask for the same."""
NAMES: Final = "abcd"
"""The requests, and the owners of their claims."""


class Guard(Enum):
    """What keeps a key from a second effect, or its callers from a lie; each can be taken away."""

    FENCE = "a fence is never given again, and is told apart by its owner's nonce"
    LOOK = "a holder looks at its lease before the first byte"
    LEASE_END = "a lease that is over makes unknown, not absent"
    RENEWAL = "a lease that is over is not renewed: a person may have seen unknown already, and decided"
    READ_BACK = "a claim that its owner reads back is leased from then, as the owner counts it, and not from a late copy's time"
    TIMEOUT = "a time-out is unknown, not released"
    COMPLETION = "a completion carries its fence"
    REWRITE = "a record that the store has lost is written anew by its holder"
    SETTLE = "a probe that finds nothing is sure only after `settle`"
    RECLAIM = "an unknown record is taken only under the fence that was found"
    DOUBT = "a record that was taken while unknown is not released: what the attempt before it did is as unknown as it was"
    STALE = "a release that the store did not confirm is not told as `executed: no`"


class Numbers(Generic[Value]):
    """Small numbers for frozen values, so that a state is a tuple of numbers; 0 is None."""

    def __init__(self) -> None:
        self._values: list[Value | None] = [None]
        self._numbers: dict[Value | None, int] = {None: 0}

    def of(self, value: Value | None) -> int:
        """The number of a value, drawn at its first sight."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> Value:
        return cast("Value", self._values[number])


class Rules:
    """The steps of the store, over numbers, without the guard `without`."""

    def __init__(self, without: Guard | None = None) -> None:
        self.without = without
        self.records: Numbers[Record | None] = Numbers()
        self.holds: Numbers[Hold] = Numbers()
        self.asks: Numbers[Ask] = Numbers()
        self.endings: Numbers[Ending] = Numbers()
        self._known: dict[tuple[object, ...], Any] = {}

    def claim(self, record: int, ask: int, now: int) -> tuple[int, Granted | Found]:
        """core.transition.claim."""
        return self._once(("claim", record, ask, now), lambda: self._claim(record, ask, now))

    def renew(self, record: int, hold: int, now: int) -> tuple[int, bool]:
        """core.transition.renew."""
        return self._once(("renew", record, hold, now), lambda: self._renew(record, hold, now))

    def end(self, record: int, hold: int, ending: int, now: int) -> tuple[int, Settled]:
        """core.transition.complete, release or mark_unknown: what the ending says."""
        return self._once(("end", record, hold, ending, now), lambda: self._end(record, hold, ending, now))

    def resolve(self, record: int, fence: int, resolution: int, now: int) -> tuple[int, Acted]:
        """core.transition.resolve; `resolution` 0 is "not executed"."""

        def carry_out() -> tuple[int, Acted]:
            completion = cast("Completion | None", self.endings[resolution])
            resolved, acted = transition.resolve(self.records[record], fence, completion, now)
            return self.records.of(resolved), acted

        return self._once(("resolve", record, fence, resolution, now), carry_out)

    def forget(self, record: int, fence: int, now: int) -> tuple[int, Acted]:
        """core.transition.forget."""

        def carry_out() -> tuple[int, Acted]:
            left, acted = transition.forget(self.records[record], fence, now)
            return self.records.of(left), acted

        return self._once(("forget", record, fence, now), carry_out)

    def aged(self, record: int, now: int) -> Record | None:
        """The record as a look at it now would show it."""
        return self._once(("aged", record, now), lambda: self._aged(self.records[record], now))

    def decide(self, found: Granted | Found, policy: Policy, *, patient: bool, waited: bool) -> Rule:
        """core.decision.decide."""
        return decide(found, FINGERPRINT, policy, patient=patient, waited=waited)

    def judge(self, result: AttemptResult) -> Settlement:
        """core.outcome.judge."""
        if self.without is Guard.TIMEOUT and isinstance(result, Unsure):
            result = NeverSent(result.reason)
        return judge(result, OutcomeRule())

    def _once(self, question: tuple[object, ...], answer: Callable[[], Value]) -> Value:
        if question not in self._known:
            self._known[question] = answer()
        return cast("Value", self._known[question])

    def _aged(self, record: Record | None, now: int) -> Record | None:
        aged = transition.aged(record, now)
        freed = self.without is Guard.LEASE_END and record != aged and aged is not None and aged.phase is Phase.UNKNOWN
        return None if freed else aged

    def _claim(self, record: int, ask: int, now: int) -> tuple[int, Granted | Found]:
        before, asked = self.records[record], self.asks[ask]
        if self.without is Guard.LEASE_END:
            before = self._aged(before, now)
        if self.without is Guard.RECLAIM and asked.reclaim is not None and before is not None:
            asked = replace(asked, reclaim=before.fence)
        after, found = transition.claim(before, asked, now)
        if self.without is Guard.READ_BACK and before is not None and isinstance(found, Granted) and after is not None:
            after = replace(after, lease_until=before.lease_until) if after.fence == before.fence else after
        if self.without is Guard.FENCE and after is not None and before is None:
            after = replace(after, fence=1)
            found = Granted(transition.hold_of(after))
        return self.records.of(after), found

    def _renew(self, record: int, hold: int, now: int) -> tuple[int, bool]:
        before = self.records[record]
        if self.without is Guard.RENEWAL and before is not None:
            before = replace(before, lease_until=max(before.lease_until, now + 1))
        after, held = transition.renew(before, self._hold(before, hold), LEASE * TICK, now)
        return self.records.of(after), held

    def _end(self, record: int, hold: int, ending: int, now: int) -> tuple[int, Settled]:
        before, ended = self.records[record], self.endings[ending]
        held = self._hold(before, hold)
        if before is None and self.without is Guard.REWRITE:
            return 0, Settled.STALE
        match ended:
            case Completion():
                if self.without is Guard.COMPLETION and before is not None:
                    held, before = transition.hold_of(before), replace(before, phase=Phase.IN_FLIGHT)
                after, settled = transition.complete(before, held, ended, now)
            case Doubt():
                after, settled = transition.mark_unknown(before, held, ended, now)
            case Release():
                after, settled = transition.release(before, held)
            case _:
                assert_never(ended)
        return self.records.of(after), settled

    def _hold(self, before: Record | None, hold: int) -> Hold:
        held = self.holds[hold]
        return replace(held, owner=before.owner) if self.without is Guard.FENCE and before is not None else held
