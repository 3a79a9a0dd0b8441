"""The steps of everything around a request: the clock, the network, the upstream, crashes and heirs, the store, an operator."""

from __future__ import annotations

from typing import Final

from idemproxy.core.policy import OnUnknown
from idemproxy.core.record import Phase, Source
from idemproxy.core.transition import Acted, Completion, Doubt, hold_of
from tests.model import promises
from tests.model.exchange import RESOLVED, Exchange
from tests.model.rules import LEASE, NAMES, NEVER, TRAVEL, Rules
from tests.model.setting import Setting
from tests.model.state import NOBODY, Request, Stage, State, Step, Wire, put
from tests.model.store import Store

PROXIES: Final = 2
_LIVES_IN_MEMORY: Final = frozenset(
    {Stage.ASKED, Stage.WAITING, Stage.READY, Stage.LOOKED, Stage.SENT, Stage.ENDING, Stage.GIVING, Stage.RETURNING}
)


class World:
    """All that can happen next."""

    def __init__(self, setting: Setting) -> None:
        self.rules = Rules(setting.without)
        self._setting = setting
        self._store = Store(self.rules, setting)
        self._exchange = Exchange(self._store, self.rules, setting)
        self._resolution = self.rules.endings.of(Completion(200, NEVER, NEVER, Source.RESOLVED, bytes([RESOLVED])))
        self._orphan = self.rules.endings.of(Doubt())

    def first(self) -> State:
        """Before anybody has asked for anything."""
        return State((Request(),) * self._setting.requests)

    def steps(self, state: State) -> list[Step]:
        """Every step from this state: whoever takes none now may take it later, and that is what a stopped process is."""
        steps = self._starts(state)
        for who in range(len(state.requests)):
            steps += self._exchange.steps(state, who)
            steps += self._network(state, who)
        steps += self._crashes(state)
        steps += self._heirs(state)
        if self._setting.operator:
            steps += self._operator(state)
        if self._setting.loses_records and state.record and state.faults < self._setting.faults:
            steps.append(Step("the store loses the record", NOBODY, state._replace(record=0, lost=True, faults=state.faults + 1)))
        if state.tick < self._setting.ticks and state.requests[0].stage != Stage.IDLE:
            steps.append(self._tick(state))
        return steps

    def _starts(self, state: State) -> list[Step]:
        """A caller sends its request, or sends it again. The names are given in this order, so that no state is met under two."""
        for who, request in enumerate(state.requests):
            if request.stage == Stage.IDLE:
                asked = put(state, who, Request(Stage.ASKED, until=state.tick + LEASE))
                return [Step(f"it asks for its claim, at proxy {who % PROXIES}", who, asked)]
        return []

    def _network(self, state: State, who: int) -> list[Step]:
        steps = []
        request = state.requests[who]
        if request.wire == Wire.TRAVELLING:
            waits = request.stage == Stage.SENT
            arrived = put(state, who, request._replace(wire=Wire.EFFECT if waits else Wire.NONE, sent_at=0))
            if self._setting.mode is not OnUnknown.RETRY or not state.effects:
                arrived = arrived._replace(effects=state.effects + 1, actor=who if state.actor == NOBODY else state.actor)
            arrived = self._store.judged(arrived, promises.broken_by_effect(arrived))
            steps.append(Step("its bytes arrive, and the upstream acts", who, arrived))
            if waits:
                refused = put(state, who, request._replace(wire=Wire.REFUSED, sent_at=0))
                steps.append(Step("its bytes arrive, and the upstream refuses to act", who, refused))
        if request.stray:
            claimed, _ = self._store.claim(state, who, request.stray)
            carried = put(claimed, who, claimed.requests[who]._replace(stray=0))
            steps.append(Step("a late copy of its claim is carried out", who, carried))
        return steps

    def _crashes(self, state: State) -> list[Step]:
        """A proxy dies with what it had in memory; what has left it goes on, and what lies in its spool stays."""
        if state.faults >= self._setting.faults:
            return []
        steps = []
        for proxy in range(PROXIES):
            hit = [who % PROXIES == proxy and each.stage in _LIVES_IN_MEMORY for who, each in enumerate(state.requests)]
            if any(hit):
                left = tuple(
                    self._dead(state, who) if dies else each
                    for who, (each, dies) in enumerate(zip(state.requests, hit, strict=True))
                )
                crashed = state._replace(requests=left, faults=state.faults + 1)
                steps.append(Step(f"proxy {proxy} crashes, and starts anew", NOBODY, crashed))
        return steps

    def _dead(self, state: State, who: int) -> Request:
        request = state.requests[who]
        stray = self._store.ask(who, request.reclaim) if request.stage == Stage.ASKED else request.stray
        travelling = request.wire == Wire.TRAVELLING
        return Request(
            Stage.DEAD,
            wire=request.wire if travelling else Wire.NONE,
            sent_at=request.sent_at if travelling else 0,
            stray=stray,
        )

    def _heirs(self, state: State) -> list[Step]:
        """The heir of a dead process marks its orphans."""
        record = self.rules.aged(state.record, self._store.now(state))
        if record is None or record.phase is not Phase.IN_FLIGHT:
            return []
        if not record.owner or state.requests[NAMES.index(record.owner)].stage != Stage.DEAD:
            return []
        marked, _ = self._store.end(state, self.rules.holds.of(hold_of(record)), self._orphan)
        return [Step(f"the heir of its proxy marks {record.owner}'s claim unknown", NOBODY, marked)]

    def _operator(self, state: State) -> list[Step]:
        """A person who finds out at the upstream what is true, and may act upon it later than that."""
        now = self._store.now(state)
        record = self.rules.aged(state.record, now)
        steps = []
        if record is not None and record.phase is Phase.UNKNOWN:
            on_their_way = any(request.wire == Wire.TRAVELLING for request in state.requests)
            seen = (record.fence, True) if state.effects else None if on_their_way else (record.fence, False)
            if seen is not None and seen != state.verdict:
                text = f"an operator finds out that it was {'' if seen[1] else 'not '}executed"
                steps.append(Step(text, NOBODY, state._replace(verdict=seen)))
        if state.verdict is not None:
            fence, executed = state.verdict
            resolved, acted = self.rules.resolve(state.record, fence, self._resolution if executed else 0, now)
            after = self._store.stored(state._replace(record=resolved, verdict=None))
            steps.append(Step(f"the operator resolves it as seen: {acted.value}", NOBODY, after))
        if self._setting.forgets and record is not None:
            forgotten, acted = self.rules.forget(state.record, record.fence, now)
            if acted is Acted.DONE:
                steps.append(Step("the operator forgets it", NOBODY, state._replace(record=forgotten, excused=True)))
        return steps

    def _tick(self, state: State) -> Step:
        tick = state.tick + 1
        requests = tuple(
            each._replace(wire=Wire.NONE, sent_at=0) if each.wire == Wire.TRAVELLING and tick > each.sent_at + TRAVEL else each
            for each in state.requests
        )
        later = state._replace(tick=tick, requests=requests)
        freed = state.record and self.rules.aged(state.record, self._store.now(later)) is None
        return Step("a tick passes", NOBODY, self._store.judged(later, promises.Promise.TIME_FREES_NOTHING if freed else None))
