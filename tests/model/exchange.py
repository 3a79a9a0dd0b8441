"""The steps of one request at its proxy, as proxy/exchange.py and proxy/settler.py take them, with every reply that can be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from idemproxy.core.decision import Verb
from idemproxy.core.outcome import Answered, AttemptResult, NeverSent, Settlement, Unsure
from idemproxy.core.record import Phase, Source
from idemproxy.core.transition import Ask, Completion, Doubt, Ending, Found, Granted, Release, Settled, hold_of
from tests.model import promises
from tests.model.promises import Promise
from tests.model.rules import FINGERPRINT, HOLD_ON, LEASE, NAMES, NEVER, RUN_AGAIN, SETTLE, TICK, Guard, Rules
from tests.model.setting import Mode, Setting
from tests.model.state import Request, Stage, State, Step, Told, Wire, put

RECOVERED: Final = 8
RESOLVED: Final = 9
"""The answers of a probe and of an operator; those of the upstream are the number of the request, from 1."""
LOST: Final = -1
"""The believed end of a lease that the store has refused to renew."""

_ENDS: Final = frozenset({Stage.DONE, Stage.DEAD, Stage.IDLE})


class Exchange:
    """What one request can do next, in each of its stages."""

    def __init__(self, rules: Rules, setting: Setting) -> None:
        self._rules = rules
        self._setting = setting
        self._policy = HOLD_ON if setting.mode is Mode.HOLD else RUN_AGAIN
        self._ways: Mapping[str, Callable[[State, int, Request], list[Step]]] = MappingProxyType(
            {
                Stage.ASKED: self._asked,
                Stage.WAITING: self._waiting,
                Stage.READY: self._ready,
                Stage.LOOKED: self._looked,
                Stage.SENT: self._sent,
                Stage.ENDING: self._ending,
                Stage.SPOOLED: self._carried_later,
                Stage.GIVING: self._giving,
                Stage.RETURNING: self._carried_later,
            }
        )

    def steps(self, state: State, who: int) -> list[Step]:
        """All that this request, or its proxy for it, can do now."""
        request = state.requests[who]
        return [] if request.stage in _ENDS else self._ways[request.stage](state, who, request)

    def claim(self, state: State, who: int, ask: int) -> tuple[State, Granted | Found]:
        """Let the store carry out a claim."""
        now = self.now(state)
        record, found = self._rules.claim(state.record, ask, now)
        if record == state.record:
            return state, found
        claimed = state._replace(record=record)
        if isinstance(found, Granted):
            before = self._rules.records[state.record]
            broken = promises.broken_by_grant(state, who, before, self._rules.asks[ask].reclaim, now)
            claimed = self.judged(claimed._replace(grants=state.grants + 1), broken)
            if state.lost:
                claimed = claimed._replace(lost=False, excused=True)
        return self.stored(claimed), found

    def end(self, state: State, hold: int, ending: int) -> tuple[State, Settled]:
        """Let the store carry out an ending."""
        record, settled = self._rules.end(state.record, hold, ending, self.now(state))
        records = self._rules.records
        broken = promises.broken_by_write(records[state.record], records[record], self._rules.holds[hold])
        is_fact = not isinstance(self._rules.endings[ending], Release)
        lost = state.lost and not (state.record == 0 and is_fact)
        return self.stored(self.judged(state._replace(record=record, lost=lost), broken)), settled

    def ask(self, who: int, reclaim: int) -> int:
        """The claim of a request; its nonce is the request's own, also when it asks again."""
        return self._rules.asks.of(Ask(FINGERPRINT, NAMES[who], "route", LEASE * TICK, reclaim or None))

    def now(self, state: State) -> int:
        """The store's clock: it moves on by a microsecond with every grant, so that fences differ also within a tick."""
        return (state.tick + 1) * TICK + state.grants

    def judged(self, state: State, broken: Promise | None) -> State:
        """The state, marked where the step to it broke a promise that this run watches."""
        return state._replace(broken=broken.value) if broken in self._setting.watched else state

    def stored(self, state: State) -> State:
        """The state, after its record has changed."""
        return self.judged(state, promises.broken_by_record(self._rules.records[state.record], self.now(state)))

    def _can_fail(self, state: State) -> bool:
        return state.faults < self._setting.faults

    def _tell(self, state: State, who: int, stage: str, told: str, answer: int = 0) -> State:
        """Answer the caller; what is no longer needed of the request is forgotten, so that equal states are equal."""
        request = state.requests[who]
        travelling = request.wire == Wire.TRAVELLING
        left = Request(
            stage=stage,
            hold=request.hold if stage != Stage.DONE else 0,
            ending=request.ending if stage != Stage.DONE else 0,
            wire=request.wire if travelling else Wire.NONE,
            sent_at=request.sent_at if travelling else 0,
            stray=request.stray,
        )
        answered = put(state, who, left)
        if answer and not state.given:
            answered = answered._replace(given=answer)
        return self.judged(answered, promises.broken_by_telling(state, told, answer))

    # The claim.

    def _asked(self, state: State, who: int, request: Request) -> list[Step]:
        ask = self.ask(who, request.reclaim)
        claimed, found = self.claim(state, who, ask)
        steps = [self._decided(claimed, who, request, found, patient=True)]
        if isinstance(found, Found) and found.record.phase is Phase.IN_FLIGHT:
            steps.append(self._decided(claimed, who, request, found, patient=False))
        if self._can_fail(state):
            failed, failed_claimed = _fault(state), _fault(claimed)
            giving = Request(Stage.GIVING, reclaim=request.reclaim, since=request.since, stray=request.stray)
            steps += [
                Step("its claim is carried out, the reply is lost, and it asks again", who, failed_claimed),
                Step("its claim is carried out, the reply is lost: it tells 503", who, put(failed_claimed, who, giving)),
            ]
            if not request.stray:
                stray = put(failed, who, request._replace(stray=ask))
                steps += [
                    Step("its claim is late, and it asks again", who, stray),
                    Step("its claim is late: it tells 503", who, put(failed, who, giving._replace(stray=ask))),
                ]
        return steps

    def _decided(self, state: State, who: int, request: Request, found: Granted | Found, *, patient: bool) -> Step:
        rule = self._rules.decide(found, self._policy, patient=patient)
        match rule.verb, found:
            case Verb.FORWARD, Granted(hold):
                ready = request._replace(stage=Stage.READY, hold=self._rules.holds.of(hold))
                return Step("its claim is granted", who, put(state, who, ready))
            case Verb.REPLAY, Found(record):
                answer = (record.answer or b"\0")[0]
                told = Told.RECOVERED if record.source is Source.RECOVERED else Told.REPLAYED
                return Step(f"it is given the stored answer {answer}", who, self._tell(state, who, Stage.DONE, told, answer))
            case Verb.REFUSE, Found(record):
                told = Told.IN_PROGRESS if record.phase is Phase.IN_FLIGHT else Told.UNKNOWN
                return Step(f"it finds {record.phase.value}, and is refused", who, self._tell(state, who, Stage.DONE, told))
            case Verb.RECLAIM, Found(record):
                again = request._replace(
                    reclaim=record.fence, since=record.settled_at or 0, until=state.tick + LEASE, stage=Stage.ASKED
                )
                return Step("it finds unknown, and asks for that fence", who, put(state, who, again))
            case Verb.WAIT, Found():
                waiting = Request(Stage.WAITING, stray=request.stray)
                return Step("it finds in_flight, and waits", who, put(state, who, waiting))
            case unknown:
                raise AssertionError(f"the model knows no way to {unknown}")

    def _waiting(self, state: State, who: int, request: Request) -> list[Step]:
        record = self._rules.aged(state.record, self.now(state))
        if record is not None and record.phase is Phase.IN_FLIGHT:
            return []
        asked = request._replace(stage=Stage.ASKED, until=state.tick + LEASE)
        return [Step("it looks again", who, put(state, who, asked))]

    def _giving(self, state: State, who: int, request: Request) -> list[Step]:
        """A claim that may have been granted is looked for, and given back."""
        doubt_kept = self._rules.without is not Guard.DOUBT
        claimed, found = self.claim(state, who, self.ask(who, 0 if doubt_kept else request.reclaim))
        match found:
            case Granted(hold):
                pass
            case Found(record) if record.owner == NAMES[who]:
                hold = hold_of(record)
            case _:
                return [Step("its claim was not granted", who, self._tell(claimed, who, Stage.DONE, ""))]
        ending: Ending = Doubt(since=request.since) if request.reclaim and doubt_kept else Release()
        returning = Request(
            Stage.RETURNING,
            hold=self._rules.holds.of(hold),
            ending=self._rules.endings.of(ending),
            stray=request.stray,
        )
        return [Step("it finds that its claim is granted", who, put(claimed, who, returning))]

    # The attempt.

    def _ready(self, state: State, who: int, request: Request) -> list[Step]:
        steps = self._renewals(state, who, request)
        if self._setting.mode is Mode.PROBE and request.reclaim:
            return [*steps, self._probed(state, who, request)]
        if state.tick >= request.until and self._rules.without is not Guard.LOOK:
            return [*steps, *self._ended(state, who, request, NeverSent("its lease is over"))]
        if self._setting.late == 0:
            steps.append(self._byte(state, who, request))
        else:
            looked = request._replace(stage=Stage.LOOKED, sent_at=state.tick)
            steps.append(Step("it sees that its lease lives", who, put(state, who, looked)))
        if self._can_fail(state):
            steps += self._ended(_fault(state), who, request, NeverSent("the connection is refused"))
        return steps

    def _probed(self, state: State, who: int, request: Request) -> Step:
        """Ask the upstream whether it has acted."""
        waited = self._rules.holds[request.hold].claimed_at - request.since
        ending: Ending
        if state.effects:
            text, ending = "its probe finds the effect", self._completion(RECOVERED, Source.RECOVERED)
        elif waited < SETTLE * TICK and self._rules.without is not Guard.SETTLE:
            text, ending = "its probe finds no effect, too early to be sure", Doubt(since=request.since)
        else:
            sure = request._replace(reclaim=0, since=0)
            return Step("its probe finds no effect, and is sure", who, put(state, who, sure))
        ended = request._replace(stage=Stage.ENDING, ending=self._rules.endings.of(ending), reclaim=0, since=0)
        return Step(text, who, put(state, who, ended))

    def _looked(self, state: State, who: int, request: Request) -> list[Step]:
        late = self._setting.late
        if late is not None and state.tick > request.sent_at + late:
            return []
        return [self._byte(state, who, request), *self._renewals(state, who, request)]

    def _byte(self, state: State, who: int, request: Request) -> Step:
        fence = self._rules.holds[request.hold].fence
        sent = put(state, who, request._replace(stage=Stage.SENT, wire=Wire.TRAVELLING, sent_at=state.tick))
        sent = sent._replace(fences=tuple(sorted((*state.fences, fence))))
        return Step("its first byte leaves", who, self.judged(sent, promises.broken_by_byte(state, fence)))

    def _sent(self, state: State, who: int, request: Request) -> list[Step]:
        steps = self._renewals(state, who, request)
        unsure = Unsure("no answer came")
        match request.wire:
            case Wire.EFFECT:
                answer = (state.actor if self._setting.mode is Mode.RETRY else who) + 1
                steps += self._ended(state, who, request, Answered(200, has_retry_after=False), answer)
            case Wire.REFUSED:
                steps += self._ended(state, who, request, Answered(429, has_retry_after=False))
            case Wire.NONE:
                steps += self._ended(state, who, request, unsure)
        if request.wire in (Wire.EFFECT, Wire.TRAVELLING) and self._can_fail(state):
            steps += self._ended(_fault(state), who, request, unsure)
        return steps

    def _renewals(self, state: State, who: int, request: Request) -> list[Step]:
        if request.until in (LOST, state.tick + LEASE) or state.renewals >= self._setting.renewals:
            return []
        now = self.now(state)
        record, held = self._rules.renew(state.record, request.hold, now)
        records = self._rules.records
        broken = promises.broken_by_write(records[state.record], records[record], self._rules.holds[request.hold])
        renewed = self.judged(state._replace(record=record, renewals=state.renewals + 1), broken)
        if not held:
            if request.until <= state.tick:
                return []
            return [Step("its lease is not renewed", who, put(renewed, who, request._replace(until=LOST)))]
        steps = [Step("its lease is renewed", who, put(renewed, who, request._replace(until=state.tick + LEASE)))]
        if self._can_fail(state) and record != state.record:
            steps.append(Step("its lease is renewed, the reply is lost", who, _fault(renewed)))
        return steps

    # The end.

    def _completion(self, answer: int, source: Source = Source.ANSWERED) -> Completion:
        return Completion(200, NEVER, NEVER, source, bytes([answer]))

    def _ended(self, state: State, who: int, request: Request, result: AttemptResult, answer: int = 0) -> list[Step]:
        """Judge the attempt, and write its end down: that nothing happens in between is no loss, since it could end later."""
        ending: Ending
        match self._rules.judge(result):
            case Settlement.COMPLETE:
                ending = self._completion(answer)
            case Settlement.RELEASE if request.reclaim and self._rules.without is not Guard.DOUBT:
                ending = Doubt(since=request.since)
            case Settlement.RELEASE:
                ending = Release()
            case Settlement.MARK_UNKNOWN:
                ending = Doubt()
        why = result.reason if isinstance(result, NeverSent | Unsure) else f"it is answered {result.status}"
        return self._end_with(state, who, request, self._rules.endings.of(ending), f"{why}; ")

    def _ending(self, state: State, who: int, request: Request) -> list[Step]:
        return [*self._end_with(state, who, request, request.ending, ""), *self._renewals(state, who, request)]

    def _end_with(self, state: State, who: int, request: Request, number: int, why: str) -> list[Step]:
        ending = self._rules.endings[number]
        name = f"{why}its {type(ending).__name__.lower()}"
        carried, settled = self.end(state, request.hold, number)
        told, answer = self._told(ending, settled)
        steps = [Step(f"{name} is {settled.value}: it tells {told}", who, self._tell(carried, who, Stage.DONE, told, answer))]
        if self._can_fail(state):
            told, _ = self._told(ending, None)
            for each, after in (("lost", state), ("carried out, the reply lost", carried)):
                spooling = put(_fault(after), who, request._replace(ending=number))
                spooled = self._tell(spooling, who, Stage.SPOOLED, told)
                steps.append(Step(f"{name} is {each}, and spooled: it tells {told}", who, spooled))
        return steps

    def _told(self, ending: Ending, settled: Settled | None) -> tuple[str, int]:
        """What the caller is told, and the answer that counts as given: not one that is marked `unrecorded`."""
        match ending, settled:
            case Completion(), None | Settled.STALE:
                return "executed, unrecorded", 0
            case Completion(source=source, answer=answer), _:
                return (Told.RECOVERED if source is Source.RECOVERED else Told.EXECUTED), (answer or b"\0")[0]
            case Release(), None | Settled.STALE if self._rules.without is not Guard.STALE:
                return Told.UNKNOWN, 0
            case Release(), _:
                return Told.NOT_EXECUTED, 0
            case _:
                return Told.UNKNOWN, 0

    def _carried_later(self, state: State, who: int, request: Request) -> list[Step]:
        carried, settled = self.end(state, request.hold, request.ending)
        name = type(self._rules.endings[request.ending]).__name__.lower()
        return [Step(f"its {name}, kept until now, is {settled.value}", who, self._tell(carried, who, Stage.DONE, ""))]


def _fault(state: State) -> State:
    return state._replace(faults=state.faults + 1)
