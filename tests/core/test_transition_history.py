"""A machine that looks for a history of the atomic steps that breaks the rules."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from idemproxy.core import transition
from idemproxy.core.record import Phase, Record, Source
from idemproxy.core.transition import Acted, Ask, Completion, Doubt, Found, Hold, Settled, Verb

NOW = 1_000_000
LEASE, RETENTION, MARK = 100, 1_000, 5_000
COMPLETION = Completion(201, RETENTION, MARK, answer=b"answer")
RESOLUTION = Completion(202, RETENTION, MARK, Source.RESOLVED, b"resolved")


class History(RuleBasedStateMachine):
    """Claims, writes by any holder that ever was, persons' acts, losses, and time, in any order; the rules of contract 7 hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.record: Record | None = None
        self.holds: list[Hold] = []
        self.alive_until = 0  # of the newest hold, as its holder knows it; 0 when it has settled or the store lost it
        self.kept: bytes | None = None

    @rule(fingerprint=st.sampled_from(["v1:a", "v1:b"]), back=st.integers(0, 3), again=st.booleans())
    def claim(self, fingerprint: str, back: int, *, again: bool) -> None:
        """A new caller asks, perhaps to run a fence again: the newest or an older one."""
        fence = self.holds[-1 - back].fence if again and len(self.holds) > back else None
        before = transition.aged(self.record, self.now)
        ask = Ask(fingerprint, f"owner-{len(self.holds)}-{self.now}-{back}", "charges", LEASE, fence)
        self.record, result = transition.claim(self.record, ask, self.now)
        if isinstance(result, Found):
            assert before == self.record
            return
        assert self.alive_until <= self.now, "a second fence while the first one's lease lives"
        assert all(result.hold.fence > hold.fence for hold in self.holds), "a fence that does not grow"
        assert before is None or (before.phase in (Phase.UNKNOWN, Phase.EXPIRED) and before.fence == fence)
        self.holds.append(result.hold)
        self.alive_until = self.now + LEASE
        self.kept = None
        self.now += 1  # the reply takes time, so that the next claim is at another moment

    @precondition(lambda self: self.holds)
    @rule(back=st.integers(0, 5), call=st.sampled_from(["renew", "complete", "release", "mark unknown"]))
    def write(self, back: int, call: str) -> None:
        """Any holder that ever was, awake or late, writes."""
        hold = self.holds[max(0, len(self.holds) - 1 - back)]
        before = self.record
        answer = b"%d %d" % (hold.fence, self.now)
        result: bool | Settled
        match call:
            case "renew":
                self.record, result = transition.renew(before, hold, LEASE, self.now)
            case "complete":
                self.record, result = transition.complete(before, hold, replace(COMPLETION, answer=answer), self.now)
            case "release":
                self.record, result = transition.release(before, hold)
            case _:
                self.record, result = transition.mark_unknown(before, hold, Doubt(500, answer=answer), self.now)
        if self.record is before:
            return
        assert before is None or (before.fence, before.owner) == (hold.fence, hold.owner), "written by another fence"
        assert result in (True, Settled.WRITTEN, Settled.REWRITTEN)
        self.kept = answer if call in ("complete", "mark unknown") else self.kept
        self.alive_until = self.now + LEASE if call == "renew" else 0

    @rule(verb=st.sampled_from(Verb), back=st.integers(-1, 3), off=st.sampled_from([0, 0, 0, 1]))
    def act(self, verb: Verb, back: int, off: int) -> None:
        """A person decides on the record as it is, or as they saw it some claims ago."""
        before, seen = self.record, transition.aged(self.record, self.now)
        fences = [*([seen.fence] if seen else []), *(hold.fence for hold in reversed(self.holds)), 0]
        fence = fences[min(1 + back, len(fences) - 1)] + off
        answer = b"a person's at %d" % self.now
        match verb:
            case Verb.RESOLVE_COMPLETED:
                self.record, result = transition.resolve(before, fence, replace(RESOLUTION, answer=answer), self.now)
            case Verb.RESOLVE_NOT_EXECUTED:
                self.record, result = transition.resolve(before, fence, None, self.now)
            case _:
                self.record, result = transition.forget(before, fence, self.now)
        if result is not Acted.DONE:
            assert seen == self.record, "a refused act that changes something"
            return
        assert seen is not None, "an act on nothing"
        assert seen.fence == fence, "an act on what has moved on"
        assert self.alive_until <= self.now, "an act against a holder whose lease lives"
        if verb is Verb.RESOLVE_COMPLETED:
            assert self.record is not None
            assert all((self.record.fence, self.record.owner) != (hold.fence, hold.owner) for hold in self.holds)
            self.kept = answer
        else:
            assert None is self.record
        assert seen.phase is Phase.UNKNOWN or (verb is Verb.FORGET and seen.phase is not Phase.IN_FLIGHT)
        self.alive_until = 0
        self.now += 1  # the reply takes time, as a claim's does

    @rule(passed=st.sampled_from([1, LEASE - 1, LEASE, RETENTION, RETENTION + MARK, 10**9]))
    def time_passes(self, passed: int) -> None:
        """Time alone never frees what is in flight or unknown, and never changes another thing about it."""
        self.now += passed
        aged = transition.aged(self.record, self.now)
        if self.record is not None and self.record.phase in (Phase.IN_FLIGHT, Phase.UNKNOWN):
            assert aged is not None
            assert aged.phase in (Phase.IN_FLIGHT, Phase.UNKNOWN)
            assert self.record == replace(aged, phase=self.record.phase, settled_at=self.record.settled_at)
        assert aged == transition.aged(aged, self.now)

    @rule()
    def the_store_loses_the_record(self) -> None:
        """A flush or a failover: the one thing that this machine cannot make good (contract 13)."""
        self.record = None
        self.alive_until = 0
        self.now += 1

    @invariant()
    def answers_are_whole_and_belong_to_their_fence(self) -> None:
        """An answer is there only with a settled record, is the one that was written last, and never comes with a claim."""
        if self.record is None:
            return
        if self.record.phase in (Phase.IN_FLIGHT, Phase.EXPIRED):
            assert None is self.record.answer
        else:
            assert self.record.answer in (None, self.kept)

    @invariant()
    def only_completed_and_expired_records_are_due(self) -> None:
        """A record in flight or unknown has no time at which it goes."""
        if self.record is not None:
            ends = self.record.phase in (Phase.COMPLETED, Phase.EXPIRED)
            assert [ends, ends] == [self.record.expires_at is not None, self.record.forget_at is not None]


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
