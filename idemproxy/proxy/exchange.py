"""The journey of a covered request, from its claim to its reply.

Each journey is a task of the proxy's own: a client that leaves changes nothing of it. It writes to the store twice, and
the order is the product: the claim is durable before the first byte leaves, and the settlement before the first byte of the
reply. The one exception is an answer that streams, which is relayed as it comes and settled at its end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

from idemproxy.core.decision import Verb, decide
from idemproxy.core.outcome import Settlement, judge
from idemproxy.core.record import MICROSECONDS
from idemproxy.core.replay import keep
from idemproxy.core.transition import Ask, Completion, Found, Granted, Settled
from idemproxy.observe.observation import Result
from idemproxy.proxy.answers import Told, refused, relayed, replayed, reply_to, result_of, store_unavailable
from idemproxy.proxy.lease import Lease, elapsed
from idemproxy.proxy.reply import Forwarded
from idemproxy.proxy.upstream import attempt, judged
from idemproxy.store.base import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from idemproxy.core.message import Answer, Request
    from idemproxy.core.policy import Route
    from idemproxy.core.record import Identity
    from idemproxy.core.transition import Hold
    from idemproxy.observe.metrics import Metrics
    from idemproxy.proxy.connection import AnswerHead
    from idemproxy.proxy.lease import Leases
    from idemproxy.proxy.pool import Pool
    from idemproxy.proxy.reply import Relay, Reply
    from idemproxy.store.base import Store, Wake

_log = logging.getLogger(__name__)

FALLBACK_POLL: Final = 1.0
"""Seconds after which a waiting request looks by itself: a lost notification only delays, and so does a holder that died."""


@dataclass(frozen=True, slots=True)
class Call:
    """A covered request, ready for its journey: whole, named, and fingerprinted. `wait` in seconds."""

    request: Request
    route: Route
    identity: Identity
    fingerprint: str
    wait: float
    owner: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


class Exchange:
    """Performs what the machine decides."""

    def __init__(
        self,
        store: Store,
        leases: Leases,
        pools: Mapping[str, Pool],
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._leases = leases
        self._pools = pools
        self._metrics = metrics
        self._loop = loop
        self._journeys: set[asyncio.Task[None]] = set()

    def start(self, call: Call) -> asyncio.Future[Reply]:
        """Set out on the journey; the future is the reply, and does not depend on anyone waiting for it."""
        reply: asyncio.Future[Reply] = self._loop.create_future()
        journey = self._loop.create_task(self._run(call, reply))
        self._journeys.add(journey)
        journey.add_done_callback(self._journeys.discard)
        return reply

    @property
    def active(self) -> int:
        """How many journeys are under way."""
        return len(self._journeys)

    async def finished(self) -> None:
        """Return when every journey has come to its end."""
        while self._journeys:
            await asyncio.wait(self._journeys)

    async def _run(self, call: Call, reply: asyncio.Future[Reply]) -> None:
        try:
            await self._journey(call, reply)
        except StoreUnavailableError as exc:
            _log.warning("route %s: %s", call.route.name, exc)
            reply.set_result(store_unavailable(call.identity.key_hash))
        except BaseException as exc:
            if reply.done():
                raise
            reply.set_exception(exc)

    async def _journey(self, call: Call, reply: asyncio.Future[Reply]) -> None:
        policy = call.route.policy
        key_hash = call.identity.key_hash
        patience = elapsed() + call.wait
        reclaim: int | None = None
        wake: Wake | None = None
        with ExitStack() as watching:
            while True:
                asked_at = elapsed()
                ask = Ask(call.fingerprint, call.owner, call.route.name, round(policy.lease * MICROSECONDS), reclaim)
                claimed = await self._store.claim(call.identity, ask, watched=wake is not None)
                rule = decide(claimed, call.fingerprint, policy, patient=asked_at < patience)
                match rule.verb, claimed:
                    case Verb.FORWARD, Granted(hold):
                        return await self._forward(call, hold, Lease(asked_at, policy.lease), reply)
                    case Verb.REPLAY, Found(record):
                        return reply.set_result(replayed(record, key_hash))
                    case Verb.REFUSE, Found(record):
                        return reply.set_result(refused(rule, record, key_hash))
                    case Verb.RECLAIM, Found(record):
                        reclaim = record.fence
                    case Verb.WAIT, _ if wake is None:
                        wake = watching.enter_context(
                            self._store.watch(call.identity)
                        )  # and look again, now that we will be told
                    case Verb.WAIT, _ if wake is not None:
                        await wake.wait(max(0.0, min(patience - elapsed(), FALLBACK_POLL)))
                    case unknown:
                        raise AssertionError(f"the journey knows no way to {unknown}")

    async def _forward(self, call: Call, hold: Hold, lease: Lease, reply: asyncio.Future[Reply]) -> None:
        """One attempt, kept alive by renewals, judged, written down, and only then answered."""
        started = perf_counter()
        policy = call.route.policy
        told = Told(call.identity.key_hash, hold.fence, hold.claimed_at + round(policy.retention * MICROSECONDS))

        def begin_relay(head: AnswerHead, relay: Relay) -> None:
            forwarded = Forwarded(Result.ANSWERED, perf_counter() - started)
            reply.set_result(relayed(head, relay, judge(judged(head), policy.outcome), forwarded, told))

        with self._leases.keep(call.identity, hold, lease):
            attempted = await attempt(self._pools[call.route.upstream], call.request, call.route, lease, begin_relay)
            settlement = judge(attempted.result, policy.outcome)
            recorded = await self._settle(call, hold, settlement, attempted.answer)
        if attempted.relay is not None:
            attempted.relay.end(broken=attempted.answer is None)
        else:
            forwarded = Forwarded(result_of(attempted.result), perf_counter() - started)
            reply.set_result(reply_to(attempted, settlement, forwarded, replace(told, unrecorded=not recorded)))

    async def _settle(self, call: Call, hold: Hold, settlement: Settlement, answer: Answer | None) -> bool:
        """Write down what the attempt proved; False when the store has not taken it."""
        policy = call.route.policy
        status = None if answer is None else answer.status
        kept = None if answer is None else keep(answer, policy)
        try:
            if settlement is Settlement.COMPLETE and status is not None:
                retention, mark = round(policy.retention * MICROSECONDS), round(policy.expired_mark * MICROSECONDS)
                settled = await self._store.complete(call.identity, hold, Completion(status, retention, mark, kept))
            elif settlement is Settlement.RELEASE:
                settled = await self._store.release(call.identity, hold)
            else:
                settled = await self._store.mark_unknown(call.identity, hold, status, kept)
        except StoreUnavailableError as exc:
            _log.error("route %s: %s could not be recorded: %s", call.route.name, settlement, exc)
            return False
        self._metrics.settled(settlement.value, settled)
        return settled is not Settled.STALE
