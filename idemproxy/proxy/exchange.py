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
from contextlib import ExitStack
from dataclasses import field
from time import perf_counter
from typing import TYPE_CHECKING, Final

from idemproxy.core.decision import Rule, Verb, decide
from idemproxy.core.ending import completed, conclude, still_unknown
from idemproxy.core.outcome import NeverSent, Settlement, Unsure, judge
from idemproxy.core.probe import Done, NotDone, Unclear
from idemproxy.core.problem import Slug
from idemproxy.core.record import MICROSECONDS, Phase, Source
from idemproxy.core.transition import Ask, Found, Granted, Release, Settled
from idemproxy.observe.observation import Result
from idemproxy.proxy.answers import (
    Told,
    lost,
    outcome_unknown,
    recovered,
    refused,
    relayed,
    replayed,
    reply_to,
    result_of,
    unseen,
)
from idemproxy.proxy.lease import Lease, elapsed
from idemproxy.proxy.probing import probe
from idemproxy.proxy.reply import Forwarded
from idemproxy.proxy.upstream import attempt, judged
from idemproxy.store.base import LostRecordsError, StoreUnavailableError, StoreUncertainError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import dataclass

    from idemproxy.core.journal import Note, WorkflowIdentity
    from idemproxy.core.message import Request
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

    `request` is what is forwarded, its stamp on it; `key` is the plain key, for probes; `wait` in seconds; `note` is what the
    journal of its workflow is told, where it is a step of one.
    """

    request: Request
    route: Route
    identity: Identity
    key: str = field(repr=False)
    fingerprint: str
    wait: float
    note: tuple[WorkflowIdentity, Note] | None = None


@dataclass(slots=True)
class Journey:
    """A call under way. Its reply does not depend on anyone who waits for it.

    `waited`: seconds spent waiting for another request with the same key, None when there was no such wait.
    """

    call: Call
    reply: asyncio.Future[Reply]
    waited: float | None = None
    seen: Record | None = None
    """What the store said of the operation last, where another has it."""
    _waiter: asyncio.Future[Reply] | None = None

    def wait(self) -> asyncio.Future[Reply]:
        """The reply, as a future of the client's own, who may cancel it: asyncio.shield takes another turn of the event loop."""
        if not self.reply.done():
            self._waiter = self.reply.get_loop().create_future()
        return self._waiter or self.reply

    def tell(self, reply: Reply) -> None:
        """Let this be the reply."""
        self.reply.set_result(reply)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(reply)

    def end(self) -> None:
        """There will be no reply, unless there is one."""
        self.reply.cancel()
        if self._waiter is not None:
            self._waiter.cancel()


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
        journey = Journey(call, self._loop.create_future())
        task = self._loop.create_task(self._run(journey))
        self._under_way[task] = journey
        task.add_done_callback(self._under_way.pop)
        return journey

    @property
    def active(self) -> int:
        """How many journeys are under way."""
        return len(self._under_way)

    async def finished(self) -> None:
        """Return when every journey has come to its end."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def abandon(self) -> None:
        """End what is under way, and tell those who wait that its outcome is unknown."""
        for task, journey in self._under_way.items():
            if not journey.reply.done():
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
        except Exception:  # noqa: BLE001 - whatever it is, the one who asked must not take silence, or a 500, for "not executed"
            _log.exception("route %s: a fault of this proxy", call.route.name)
            if not journey.reply.done():
                journey.tell(outcome_unknown(Unsure("this proxy failed", "proxy_internal_error")))
        finally:
            journey.end()  # where nothing else was said, since the run is at its end

    async def _travel(self, journey: Journey) -> None:
        """Claim, and do what the machine says, until there is something to say to the client."""
        call, reply = journey.call, journey.reply
        policy, key_hash = call.route.policy, call.identity.key_hash
        owner: str | None = None
        patience = elapsed() + call.wait
        before: Record | None = None
        reclaim: int | None = None
        wake: Wake | None = None
        with ExitStack() as stack:
            while not reply.done():
                owner, asked_at = owner or self._owner.draw(), elapsed()
                ask = Ask(call.fingerprint, owner, call.route.name, round(policy.lease * MICROSECONDS), reclaim)
                claimed = await self._claim(call.identity, ask, before, watched=wake is not None)
                if isinstance(claimed, Found):
                    journey.seen = claimed.record
                    before, reclaim = None, None  # another was quicker; what was unknown then may be decided by now
                rule = decide(claimed, call.fingerprint, policy, patient=asked_at < patience, waited=wake is not None)
                match rule.verb, claimed:
                    case Verb.FORWARD, Granted(hold):
                        if call.note is not None:
                            await self._note(call, *call.note, hold, before)
                        await self._act(journey, hold, Lease(asked_at, policy.lease), before)
                        owner = before = reclaim = None  # for another look, where there is no reply yet
                    case Verb.REPLAY, Found(record):
                        journey.tell(await replayed(record, key_hash, call.request.fields))
                    case Verb.REFUSE, Found(record):
                        journey.tell(refused(rule, record, key_hash))
                    case ((Verb.RECLAIM | Verb.PROBE), Found(record)):  # of those who ask at once, one gets the claim
                        before, reclaim = record if record.phase is Phase.UNKNOWN else None, record.fence
                    case Verb.WAIT, Found() if wake is None:  # look again, now that the settlement will be told
                        wake = stack.enter_context(self._store.watch(call.identity))
                    case Verb.WAIT, Found() if wake is not None:
                        await wake.wait(max(0.0, min(patience - elapsed(), FALLBACK_POLL)))
                        journey.waited = elapsed() - (patience - call.wait)
                    case unknown:
                        raise AssertionError(f"the journey knows no way to {unknown}")

    async def _note(self, call: Call, workflow: WorkflowIdentity, note: Note, hold: Hold, before: Record | None) -> None:
        """See that a step is in the journal before it is forwarded; if it is not, the claim is given back."""
        try:
            await self._store.journals.note(workflow, note)
        except StoreUnavailableError:
            await self._settler.settle(call.identity, hold, Release() if before is None else still_unknown(before))
            raise

    async def _claim(self, identity: Identity, ask: Ask, before: Record | None, *, watched: bool) -> Granted | Found:
        try:
            return await self._store.claim(identity, ask, watched=watched)
        except StoreUncertainError:
            self._settler.give_back(identity, ask, Release() if before is None else still_unknown(before))
            raise

    async def _act(self, journey: Journey, hold: Hold, lease: Lease, before: Record | None) -> None:
        """What a grant allows: to forward, once; where the outcome was unknown and can be asked for, after asking."""
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

        def begin_relay(head: AnswerHead, relay: Relay) -> None:
            forwarded = Forwarded(Result.ANSWERED, perf_counter() - started)
            settlement = judge(judged(head), policy.outcome)
            journey.tell(relayed(head, relay, settlement, forwarded, _told(call, hold, forwarded.seconds)))

        attempted = await attempt(self._pools[call.route.upstream], call.request, call.key, call.route, lease, begin_relay)
        settlement, ending = conclude(attempted.result, attempted.answer, policy, before)
        settled = await self._settler.settle(call.identity, hold, ending)
        if attempted.relay is not None:
            attempted.relay.end(broken=attempted.answer is None)
            return
        unsent = isinstance(attempted.result, NeverSent)
        if unsent and (settled is Settled.STALE or (settled is None and lease.is_over())):
            return
        forwarded = Forwarded(result_of(attempted.result), perf_counter() - started)
        if unsent and before is not None:
            journey.tell(refused(_HELD, before, call.identity.key_hash, forwarded=forwarded))
            return
        if settled is Settled.STALE:
            settlement = Settlement.MARK_UNKNOWN  # what this answer says is not all that happened to the operation
        told = _told(call, hold, forwarded.seconds, unrecorded=settled in (None, Settled.STALE))
        journey.tell(reply_to(attempted, settlement, forwarded, told))

    async def _probe(self, journey: Journey, hold: Hold, before: Record, rule: ProbeRule) -> bool:
        """Ask the upstream about an unknown outcome; True when it surely did not happen, and may be forwarded."""
        call = journey.call
        since = before.settled_at or before.claimed_at
        unsettled = rule.settle - (hold.claimed_at - since) / MICROSECONDS
        verdict = await probe(self._pools[call.route.upstream], rule, call.request, call.key, call.route)
        match verdict:
            case Done(answer):
                settled = await self._settler.settle(call.identity, hold, completed(answer, call.route.policy, Source.RECOVERED))
                unrecorded = settled in (None, Settled.STALE)
                journey.tell(recovered(answer, _told(call, hold, 0.0, unrecorded=unrecorded)))
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


def _told(call: Call, hold: Hold, seconds: float, *, unrecorded: bool = False) -> Told:
    """What a reply tells of its operation, `seconds` after the claim: about when its answer expires, on the store's clock."""
    expires_at = hold.claimed_at + round((seconds + call.route.policy.retention) * MICROSECONDS)
    return Told(call.identity.key_hash, hold.fence, expires_at, unrecorded)
