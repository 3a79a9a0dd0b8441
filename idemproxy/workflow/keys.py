"""Records by their key: what became of an operation, and the answer that a retry would get, without a retry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from idemproxy.core.decision import Rule, Verb
from idemproxy.core.key import hash_secretly
from idemproxy.core.problem import Slug, problem
from idemproxy.core.record import Identity, Phase, time_shown
from idemproxy.core.scope import find_scope
from idemproxy.observe.observation import Outcome
from idemproxy.proxy.answers import refused, replayed
from idemproxy.proxy.exchange import FALLBACK_POLL
from idemproxy.proxy.lease import elapsed
from idemproxy.workflow.answers import NO_STORE, Shown, shown
from idemproxy.workflow.asked import TurnedAwayError, bad, read_wait
from idemproxy.workflow.checkpoint import SETTLED, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idemproxy.core.policy import Route
    from idemproxy.core.record import Record
    from idemproxy.proxy.reply import Reply
    from idemproxy.store.base import Store
    from idemproxy.workflow.asked import Asked

_REFUSALS: Final = MappingProxyType(
    {
        Phase.IN_FLIGHT: Slug.IN_PROGRESS,
        Phase.UNKNOWN: Slug.OUTCOME_UNKNOWN,
        Phase.COMPLETED: Slug.RESPONSE_UNAVAILABLE,
        Phase.EXPIRED: Slug.KEY_EXPIRED,
    }
)
"""Why there is no answer to be given, by the phase of a record without one."""


class Keys:
    """The pages of keys. `hurries` says that nobody may wait any more."""

    def __init__(self, store: Store, routes: Sequence[Route], secret: bytes | None, hurries: Callable[[], bool]) -> None:
        self._store = store
        self._secret = secret
        self._hurries = hurries
        self._homes = tuple(dict.fromkeys((route.upstream, route.policy.scope) for route in routes))
        """Where a key may have its record, in the order of the routes."""

    async def record(self, asked: Asked) -> Reply:
        """What is known of an operation."""
        return shown(record_shown(*await self._find(asked)))

    async def response(self, asked: Asked) -> Reply:
        """The answer that a retry would get, or why it would get none."""
        identity, record = await self._find(asked)
        if record.phase is Phase.COMPLETED and record.answer is not None:
            reply = await replayed(record, identity.key_hash, asked.request.fields)
        else:
            reply = refused(Rule(Verb.REFUSE, _REFUSALS[record.phase]), record, identity.key_hash)
        lines = b"" if reply.slug else NO_STORE  # a problem document has it
        return replace(reply, head=reply.head + lines, outcome=Outcome.OWN)

    async def _find(self, asked: Asked) -> tuple[Identity, Record]:
        """The one record that is meant, settled, or as it is when the time to wait is over. Raises TurnedAwayError."""
        wait = read_wait(asked.parameters)
        identities = self._identities(asked)
        records = await asyncio.gather(*map(self._store.read, identities))
        known: dict[str, tuple[Identity, Record]] = {}
        for identity, record in zip(identities, records, strict=True):
            if record is not None:
                known.setdefault(identity.upstream, (identity, record))  # of the scopes of one upstream, the first route's
        match list(known.values()):
            case [(identity, record)] if record.phase is Phase.IN_FLIGHT and wait:
                return identity, await self._settled(identity, wait)
            case [found]:
                return found
            case []:
                raise _unknown()
            case _:
                raise bad(f"Several upstreams have a record of this key: say one as `?upstream=`, of {', '.join(sorted(known))}.")

    def _identities(self, asked: Asked) -> list[Identity]:
        """Where the record may be, for this caller. Raises TurnedAwayError."""
        upstreams = sorted({upstream for upstream, _ in self._homes})
        wanted = asked.parameters.get("upstream")
        if wanted is not None and wanted not in upstreams:
            raise bad(f"There is no such upstream: `upstream` is one of {', '.join(upstreams)}.")
        key_hash = hash_secretly(asked.name.encode("ascii"), self._secret)
        return [
            Identity(find_scope(asked.request.fields, rule, self._secret), upstream, key_hash)
            for upstream, rule in self._homes
            if wanted in (None, upstream)
        ]

    async def _settled(self, identity: Identity, seconds: float) -> Record:
        """The record when it is no longer in flight, or when so many seconds are over. Raises TurnedAwayError."""
        until = elapsed() + seconds
        with self._store.watch(identity) as wake:
            while True:
                record = await self._store.read(identity)
                left = until - elapsed()
                if record is None:
                    raise _unknown()
                if record.phase is not Phase.IN_FLIGHT or left <= 0 or self._hurries():
                    return record
                await wake.wait(min(left, FALLBACK_POLL))


def record_shown(identity: Identity, record: Record) -> Shown:
    """A record as JSON, without its answer."""
    executed, retry = standing(record)
    return {
        "key": identity.key_hash,
        "upstream": identity.upstream,
        "route": record.route,
        "phase": record.phase.value,
        "executed": executed.value,
        "retry": retry.value,
        "status": record.status,
        "source": record.source.value if record.phase in SETTLED else None,
        "fence": record.fence,
        "claimed_at": time_shown(record.claimed_at),
        "settled_at": time_shown(record.settled_at),
        "expires_at": time_shown(record.expires_at),
        "forget_at": time_shown(record.forget_at),
    }


def _unknown() -> TurnedAwayError:
    detail = (
        "There is no record of this key for this caller: it was never used, was released since nothing was executed, or was "
        "forgotten. A request with it is carried out as a new one."
    )
    return TurnedAwayError(problem(Slug.KEY_UNKNOWN, detail))
