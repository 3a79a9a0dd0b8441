"""The journey of a covered request, from its claim to its reply.

Each journey is a task of the proxy's own: a client that leaves changes nothing of it. It writes to the store twice, and
the order is the product: the claim is durable before the first byte leaves, and the settlement before the first byte of the
reply. The one exception is an answer that streams, which is relayed as it comes and settled at its end. A step of a workflow is
noted in between, so that a journal holds what may have been carried out, and no more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import field
from functools import partial
from time import perf_counter
from traceback import clear_frames
from typing import TYPE_CHECKING, Final, cast

from idemproxy.core.decision import Rule, Verb, decide
from idemproxy.core.ending import completed, conclude, still_unknown
from idemproxy.core.origin import with_origin
from idemproxy.core.outcome import NeverSent, Settlement, Unsure, judge
from idemproxy.core.probe import Done, NotDone, Unclear
from idemproxy.core.problem import Slug
from idemproxy.core.record import MICROSECONDS, Phase, Source
from idemproxy.core.replay import passed_on
from idemproxy.core.transition import Ask, Granted, Release, Settled
from idemproxy.observe.observation import Result
from idemproxy.proxy.answers import (
    RESULTS,
    Particulars,
    lost,
    outcome_unknown,
    recovered,
    refused,
    relayed,
    replayed,
    reply_to,
    unseen,
)
from idemproxy.proxy.lease import Lease, elapsed
from idemproxy.proxy.probing import probe
from idemproxy.proxy.reply import Forwarded
from idemproxy.proxy.upstream import attempt, judged
from idemproxy.store.base import LostRecordsError, StoreUnavailableError, StoreUncertainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import dataclass

    from idemproxy.core.journal import Note, WorkflowIdentity
    from idemproxy.core.message import Request
    from idemproxy.core.origin import Arrival
    from idemproxy.core.policy import Route
    from idemproxy.core.probe import ProbeRule
    from idemproxy.core.record import Identity, Record
    from idemproxy.core.transition import Hold
    from idemproxy.proxy.answer_reader import AnswerHead
    from idemproxy.proxy.lease import Leases
    from idemproxy.proxy.orphans import Owner
    from idemproxy.proxy.pool import Pool
    from idemproxy.proxy.reply import Relay, Reply
    from idemproxy.proxy.settler import Settler
    from idemproxy.store.base import Store, Wake
else:
    from idemproxy.core.value import dataclass

_log = logging.getLogger(__name__)

FALLBACK_POLL: Final = 1.0
"""Seconds after which a waiting request looks by itself: a lost notification only delays, and so does a holder that died."""

_HELD: Final = Rule(Verb.REFUSE, Slug.OUTCOME_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Call:
    """A covered request, ready for its journey: whole, named, and fingerprinted.

    `request` is what is asked, its stamp on it; `key` is the plain key, for probes; `wait` in seconds; `note` is what the journal
    of its workflow is told, where it is a step of one.
    """

    request: Request
    route: Route
    identity: Identity
    key: str = field(repr=False)
    fingerprint: str
    wait: float
    arrival: Arrival
    note: tuple[WorkflowIdentity, Note] | None = None

    def as_sent(self) -> Request:
        """The request as the upstream gets it; a replay does without."""
        return with_origin(self.request, self.route, self.arrival)


@dataclass(slots=True)
class Journey:
    """A call under way. Its reply does not depend on anyone who waits for it.

    `waiter` has it for the one who asked, who may cancel that; `patience` is until when it waits for another request with the
    same key (`lease.elapsed`). `waited`: seconds that it has spent so, None when there was no such wait.
    """

    call: Call
    waiter: asyncio.Future[Reply]
    patience: float
    reply: Reply | None = None
    waited: float | None = None
    seen: Record | None = None
    """What the store said of the operation last, where another has it."""
    _unheard: Callable[[Reply], None] | None = None

    def tell(self, reply: Reply) -> None:
        """Let this be the reply."""
        self.reply = reply
        if not self.waiter.done():
            self.waiter.set_result(reply)
        elif self._unheard is not None:
            unheard, self._unheard = self._unheard, None  # it may know this journey
            unheard(reply)

    def leave(self, unheard: Callable[[Reply], None]) -> None:
        """The one who asked waits no more; `unheard` is given the reply, when there is one."""
        if self.reply is None:
            self._unheard = unheard
        else:
            unheard(self.reply)


class Exchange:
    """Performs what the machine decides."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        leases: Leases,
        pools: Mapping[str, Pool],
        owner: Owner,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._settler = settler
        self._leases = leases
        self._pools = pools
        self._owner = owner
        self._loop = loop
        self._under_way: dict[asyncio.Task[None], Journey] = {}

    def start(self, call: Call) -> Journey:
        """Set out on the journey, in a task of its own."""
        journey = Journey(call, self._loop.create_future(), elapsed() + call.wait)
        self._under_way[self._loop.create_task(self._run(journey))] = journey
        return journey

    @property
    def active(self) -> int:
        """How many journeys are under way."""
        return len(self._under_way)

    async def finished(self) -> None:
        """Return when every journey has come to its end."""
        while self._under_way:
            ended, _ = await asyncio.wait(self._under_way)
            for task in ended:
                self._under_way.pop(task, None)  # as each does by itself, but for one that was cancelled before it began

    async def abandon(self) -> None:
        """End what is under way, and tell those who wait that its outcome is unknown."""
        for task, journey in self._under_way.items():
            if journey.reply is None:
                journey.tell(outcome_unknown(Unsure("this proxy was stopped", "proxy_internal_error")))
            task.cancel()
        await self.finished()

    async def _run(self, journey: Journey) -> None:
        call = journey.call
        try:
            await self._travel(journey)
        except LostRecordsError:  # told once, by store.inspection
            journey.tell(lost(call.identity.key_hash))
        except StoreUnavailableError as exc:
            _log.warning("route %s: %s", call.route.name, exc)
            journey.tell(unseen(journey.seen, call.identity.key_hash))
            clear_frames(exc.__traceback__)  # some know what was raised in them: the body would wait for a search for cycles
            exc.__traceback__ = None
        except Exception:  # noqa: BLE001 - whatever it is, the one who asked must not take silence, or a 500, for "not executed"
            _log.exception("route %s: a fault of this proxy", call.route.name)
            if journey.reply is None:
                journey.tell(outcome_unknown(Unsure("this proxy failed", "proxy_internal_error")))
        finally:
            if journey.reply is None:  # since the run is at its end
                journey.waiter.cancel()
            self._under_way.pop(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _travel(self, journey: Journey, wake: Wake | None = None) -> None:
        """Claim, and do what the machine says, until there is something to say to the client.

        `wake` tells of the settlement for which the journey waits, once it does.
        """
        call, policy = journey.call, journey.call.route.policy
        before: Record | None = None
        reclaim: int | None = None
        while journey.reply is None:
            asked_at = elapsed()
            ask = Ask(call.fingerprint, self._owner.draw(), call.route.name, round(policy.lease * MICROSECONDS), reclaim)
            try:
                claimed = await self._store.claim(call.identity, ask, watched=wake is not None)
            except StoreUncertainError:
                self._settler.give_back(call.identity, ask, Release() if before is None else still_unknown(before))
                raise
            rule = decide(claimed, call.fingerprint, policy, patient=asked_at < journey.patience, waited=wake is not None)
            if isinstance(claimed, Granted):
                if rule.verb is not Verb.FORWARD:
                    raise AssertionError(f"a claim was granted in vain: {rule}")
                await self._act(journey, claimed.hold, Lease(asked_at, policy.lease), before)
                before, reclaim = None, None  # for another look, where there is no reply yet
                continue
            journey.seen = found = claimed.record
            before, reclaim = None, None  # another was quicker; what was unknown then may be decided by now
            match rule.verb:
                case Verb.REPLAY:
                    journey.tell(await replayed(found, call.identity.key_hash, call.request.fields))
                case Verb.REFUSE:
                    journey.tell(refused(rule, found, call.identity.key_hash))
                case Verb.RECLAIM | Verb.PROBE:  # of those who ask at once, one gets the claim
                    before, reclaim = found if found.phase is Phase.UNKNOWN else None, found.fence
                case Verb.WAIT:
                    await self._wait(journey, wake)
                case Verb.FORWARD:
                    raise AssertionError(f"nobody may forward what is found: {found}")

    async def _wait(self, journey: Journey, wake: Wake | None) -> None:
        """Until something may have happened to the operation; the first time only see to it that this is told, and look again."""
        if wake is None:
            with self._store.watch(journey.call.identity) as watching:
                await self._travel(journey, watching)
        else:
            await wake.wait(max(0.0, min(journey.patience - elapsed(), FALLBACK_POLL)))
            journey.waited = elapsed() - (journey.patience - journey.call.wait)

    async def _note(self, call: Call, workflow: WorkflowIdentity, note: Note, hold: Hold, before: Record | None) -> None:
        """See that a step is in the journal before it is forwarded; if it is not, the claim is given back."""
        try:
            await self._store.journals.note(workflow, note)
        except StoreUnavailableError:
            await self._settler.settle(call.identity, hold, Release() if before is None else still_unknown(before))
            raise

    async def _act(self, journey: Journey, hold: Hold, lease: Lease, before: Record | None) -> None:
        """What a grant allows: to forward, once; where the outcome was unknown and can be asked for, after asking."""
        if journey.call.note is not None:
            await self._note(journey.call, *journey.call.note, hold, before)
        rule = journey.call.route.policy.probe
        self._leases.keep(journey.call.identity, hold, lease)
        try:
            if before is None or rule is None:
                await self._forward(journey, hold, lease, before)
            elif await self._probe(journey, hold, before, rule):
                await self._forward(journey, hold, lease, None)
        finally:
            self._leases.let_go(hold)

    async def _forward(self, journey: Journey, hold: Hold, lease: Lease, before: Record | None) -> None:
        """One attempt, kept alive by renewals, judged, written down, and only then answered.

        There is no reply when nothing was sent and the record is, or may be, another's by now: that one has more to tell.
        """
        started = perf_counter()
        call, policy = journey.call, journey.call.route.policy

        begin_relay = partial(_begin_relay, journey, hold, started)
        attempted = await attempt(self._pools[call.route.upstream], call.as_sent(), call.key, call.route, lease, begin_relay)
        settlement, ending = conclude(attempted.result, attempted.answer, attempted.head, policy, before)
        settled = await self._settler.settle(call.identity, hold, ending)
        if attempted.relay is not None:
            attempted.relay.end(broken=attempted.answer is None)
            return
        unsent, overtaken = isinstance(attempted.result, NeverSent), settled is Settled.STALE
        if unsent and (overtaken or (settled is None and lease.is_over())):
            return
        forwarded = Forwarded(RESULTS[type(attempted.result)], perf_counter() - started)
        if unsent and before is not None:
            journey.tell(refused(_HELD, before, call.identity.key_hash, forwarded=forwarded))
            return
        if overtaken:
            settlement = Settlement.MARK_UNKNOWN  # what this answer says is not all that happened to the operation
        unrecorded = overtaken or settled is None
        journey.tell(reply_to(attempted, settlement, _particulars(call, hold, forwarded, unrecorded=unrecorded)))

    async def _probe(self, journey: Journey, hold: Hold, before: Record, rule: ProbeRule) -> bool:
        """Ask the upstream about an unknown outcome; True when it surely did not happen, and may be forwarded."""
        call = journey.call
        since = before.settled_at or before.claimed_at
        unsettled = rule.settle - (hold.claimed_at - since) / MICROSECONDS
        verdict = await probe(self._pools[call.route.upstream], rule, call.as_sent(), call.key, call.route)
        match verdict:
            case Done(answer):
                head = passed_on(answer.reason, answer.fields)
                ending = completed(answer, head, call.route.policy, Source.RECOVERED)
                settled = await self._settler.settle(call.identity, hold, ending)
                unrecorded = settled is None or settled is Settled.STALE
                journey.tell(recovered(answer, head, _particulars(call, hold, unrecorded=unrecorded)))
            case NotDone() if unsettled <= 0:
                return True
            case NotDone():
                await self._settler.settle(call.identity, hold, still_unknown(before))
                retry_after = max(1, math.ceil(unsettled))
                journey.tell(refused(_HELD, before, call.identity.key_hash, retry_after=retry_after))
            case Unclear(reason):
                _log.warning("route %s: a probe proved nothing: %s", call.route.name, reason)
                await self._settler.settle(call.identity, hold, still_unknown(before))
                journey.tell(refused(_HELD, before, call.identity.key_hash))
        return False


def _begin_relay(journey: Journey, hold: Hold, started: float, head: AnswerHead, relay: Relay) -> None:
    """The reply is an answer that only begins."""
    call, forwarded = journey.call, Forwarded(Result.ANSWERED, perf_counter() - started)
    settlement = judge(judged(head), call.route.policy.outcome)
    journey.tell(relayed(head, relay, settlement, _particulars(call, hold, forwarded)))


def _particulars(call: Call, hold: Hold, forwarded: Forwarded | None = None, *, unrecorded: bool = False) -> Particulars:
    """Of an operation that was `forwarded` after its claim, or found: about when its answer expires, on the store's clock."""
    seconds = (forwarded.seconds if forwarded else 0.0) + call.route.policy.retention
    expires_at = hold.claimed_at + round(seconds * MICROSECONDS)
    return Particulars(call.identity.key_hash, hold.fence, expires_at, unrecorded, forwarded)
