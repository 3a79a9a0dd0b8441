"""The store's steps: each is the product's pure function over the one record, and is judged as it happens."""

from __future__ import annotations

from idemproxy.core.transition import Ask, Found, Granted, Release, Settled, hold_of
from tests.model import promises
from tests.model.promises import Promise
from tests.model.rules import FINGERPRINT, LEASE, NAMES, TICK, Rules
from tests.model.setting import Setting
from tests.model.state import State


class Store:
    """One record, or none, in the state that each step is given and returns changed."""

    def __init__(self, rules: Rules, setting: Setting) -> None:
        self._rules = rules
        self._setting = setting

    def claim(self, state: State, who: int, ask: int) -> tuple[State, Granted | Found]:
        """Let the store carry out a claim."""
        now = self.now(state)
        record, found = self._rules.claim(state.record, ask, now)
        if record == state.record:
            return state, found
        claimed = state._replace(record=record)
        before = self._rules.records[state.record]
        if isinstance(found, Granted) and (before is None or hold_of(before) != found.hold):
            broken = promises.broken_by_grant(state, who, before, self._rules.asks[ask].reclaim, now)
            claimed = claimed._replace(grants=state.grants + 1, lost=False, excused=state.excused or state.lost)
            claimed = claimed if claimed.excused else self.judged(claimed, broken)
        return self.stored(claimed), found

    def end(self, state: State, hold: int, ending: int) -> tuple[State, Settled]:
        """Let the store carry out an ending."""
        record, settled = self._rules.end(state.record, hold, ending, self.now(state))
        records = self._rules.records
        broken = promises.broken_by_write(records[state.record], records[record], self._rules.holds[hold])
        is_fact = not isinstance(self._rules.endings[ending], Release)
        lost = state.lost and not (state.record == 0 and is_fact)
        return self.stored(self.judged(state._replace(record=record, lost=lost), broken)), settled

    def renew(self, state: State, hold: int) -> tuple[State, bool]:
        """Let the store carry out a renewal."""
        record, held = self._rules.renew(state.record, hold, self.now(state))
        records = self._rules.records
        broken = promises.broken_by_write(records[state.record], records[record], self._rules.holds[hold])
        return self.judged(state._replace(record=record, renewals=state.renewals + 1), broken), held

    def ask(self, who: int, reclaim: int) -> int:
        """The claim of a request; its nonce is the request's own, also when it asks again."""
        return self._rules.asks.of(Ask(FINGERPRINT, NAMES[who], "route", LEASE * TICK, reclaim or None))

    def now(self, state: State) -> int:
        """The store's clock: it moves on by a microsecond with every grant, so that fences differ also within a tick."""
        return (state.tick + 1) * TICK + state.grants

    def judged(self, state: State, broken: Promise | None) -> State:
        """The state, marked where the step to it broke a promise that this run watches."""
        return state if broken is None or broken not in self._setting.watched else state._replace(broken=broken.value)

    def stored(self, state: State) -> State:
        """The state, after its record has changed."""
        return self.judged(state, promises.broken_by_record(self._rules.records[state.record], self.now(state)))
