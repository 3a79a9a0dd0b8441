"""The steps of one request at its proxy, as proxy/exchange.py and proxy/settler.py take them, with all that can be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from idemproxy.core.decision import Verb
from idemproxy.core.outcome import Answered, AttemptResult, NeverSent, Settlement, Unsure
from idemproxy.core.policy import OnUnknown, Policy
from idemproxy.core.record import Phase, Source
from idemproxy.core.transition import Completion, Doubt, Ending, Found, Granted, Release, Settled, hold_of
from tests.model import promises
from tests.model.rules import LEASE, NAMES, NEVER, SETTLE, TICK, Guard, Rules
from tests.model.setting import Setting
from tests.model.state import Request, Stage, State, Step, Told, Wire, put
from tests.model.store import Store

RECOVERED: Final = 8
RESOLVED: Final = 9
"""The answers of a probe and of an operator; those of the upstream are the number of the request, from 1."""
LOST: Final = -1
"""The believed end of a lease that the store has refused to renew."""

_NAMES: Final[Mapping[type, str]] = MappingProxyType({Completion: "completion", Doubt: "mark of unknown", Release: "release"})
_ENDS: Final = frozenset({Stage.DONE, Stage.DEAD, Stage.IDLE})


class Exchange:
    """What one request can do next, in each of its stages."""

    def __init__(self, store: Store, rules: Rules, setting: Setting) -> None:
        self._store = store
        self._rules = rules
        self._setting = setting
        self._policy = Policy(on_unknown=setting.mode)
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
        return self._store.judged(answered, promises.broken_by_telling(state, told, answer))

    # The claim.

    def _asked(self, state: State, who: int, request: Request) -> list[Step]:
        ask = self._store.ask(who, request.reclaim)
        claimed, found = self._store.claim(state, who, ask)
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
        rule = self._rules.decide(found, self._policy, patient=patient, waited=request.waited)
        match rule.verb, found:
            case Verb.FORWARD, Granted(hold):
                ready = request._replace(stage=Stage.READY, waited=False, hold=self._rules.holds.of(hold))
                return Step("its claim is granted", who, put(state, who, ready))
            case Verb.REPLAY, Found(record):
                answer = (record.answer or b"\0")[0]
                told = Told.RECOVERED if record.source is Source.RECOVERED else Told.REPLAYED
                return Step(f"it is given the stored answer {answer}", who, self._tell(state, who, Stage.DONE, told, answer))
            case Verb.REFUSE, Found(record):
                told = Told.IN_PROGRESS if record.phase is Phase.IN_FLIGHT else Told.UNKNOWN
                return Step(f"it finds {record.phase.value}, and is refused", who, self._tell(state, who, Stage.DONE, told))
            case Verb.RECLAIM | Verb.PROBE, Found(record):
                again = request._replace(
                    reclaim=record.fence, since=record.settled_at or 0, until=state.tick + LEASE, stage=Stage.ASKED
                )
                return Step("it finds unknown, and asks for that fence", who, put(state, who, again))
            case Verb.WAIT, Found():
                waiting = request._replace(stage=Stage.WAITING, until=0, waited=self._setting.mode is OnUnknown.PROBE)
                return Step("it finds in_flight, and waits", who, put(state, who, waiting))
            case unknown:
                raise AssertionError(f"the model knows no way to {unknown}")

    def _waiting(self, state: State, who: int, request: Request) -> list[Step]:
        record = self._rules.aged(state.record, self._store.now(state))
        if record is not None and record.phase is Phase.IN_FLIGHT and record.owner != NAMES[who]:
            return []  # it would find what it has found
        asked = request._replace(stage=Stage.ASKED, until=state.tick + LEASE)
        return [Step("it looks again", who, put(state, who, asked))]

    def _giving(self, state: State, who: int, request: Request) -> list[Step]:
        """A claim that may have been granted is looked for, and given back."""
        doubt_kept = self._rules.without is not Guard.DOUBT
        claimed, found = self._store.claim(state, who, self._store.ask(who, 0 if doubt_kept else request.reclaim))
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
        if self._setting.mode is OnUnknown.PROBE and request.reclaim:
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
        return Step("its first byte leaves", who, self._store.judged(sent, promises.broken_by_byte(state, fence)))

    def _sent(self, state: State, who: int, request: Request) -> list[Step]:
        steps = self._renewals(state, who, request)
        unsure = Unsure("no answer came")
        match request.wire:
            case Wire.EFFECT:
                answer = (state.actor if self._setting.mode is OnUnknown.RETRY else who) + 1
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
        renewed, held = self._store.renew(state, request.hold)
        if not held:
            if request.until <= state.tick:
                return []
            return [Step("its lease is not renewed", who, put(renewed, who, request._replace(until=LOST)))]
        steps = [Step("its lease is renewed", who, put(renewed, who, request._replace(until=state.tick + LEASE)))]
        if self._can_fail(state) and renewed.record != state.record:
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
        name = f"{why}its {_NAMES[type(ending)]}"
        carried, settled = self._store.end(state, request.hold, number)
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
        carried, settled = self._store.end(state, request.hold, request.ending)
        name = _NAMES[type(self._rules.endings[request.ending])]
        return [Step(f"its {name}, kept until now, is {settled.value}", who, self._tell(carried, who, Stage.DONE, ""))]


def _fault(state: State) -> State:
    return state._replace(faults=state.faults + 1)
