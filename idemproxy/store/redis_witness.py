"""Witnesses: how a store that has lost its records is told from one that never had any.

An absent record says "never seen" only in a store that has kept what it was given. So the records are spread over buckets, and
each bucket has a witness in its own slot: a key without an expiry, whose value, its generation, was drawn by whoever made it.
What a process has seen it remembers. Where a witness is gone later, or has another generation, the records beside it went with
it: by FLUSHALL, a restart without persistence, a failover to an empty replica. Then an absent record proves nothing, and
lua/claim.lua grants nothing for it. A record that is there proves itself. A loss that leaves the witnesses is not seen, as that
of the last writes in a failover.

A process takes the generations that it finds when it first sees them. So whoever has seen to a loss starts the proxies anew.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from idemproxy.store.base import LostRecordsError, StoreUnavailableError
from idemproxy.store.base_finding import RECORDS, Finding, Level
from idemproxy.store.redis_cluster import ClusterLink
from idemproxy.store.redis_form import BUCKETS, Keys
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_link import Link, together
from idemproxy.store.redis_script import CHECK, OPEN, packed

_log = logging.getLogger("idemproxy")

_LOST: Final = "the store has lost records since this proxy started"
_MEANING: Final = (
    f"{_LOST} (FLUSHALL, a restart without persistence, or a failover to an empty replica): nobody knows whether an operation "
    "without a record was carried out before, so none is sent; decide what may be retried, then restart every proxy of this "
    "store, or accept such losses with `store.accept_risk: [loss]`"
)
_ACCEPTED: Final = f"{_LOST}, which store.accept_risk accepts: an operation that was carried out before is carried out again"


class Witnesses:
    """What this process has seen of the store's witnesses. `accepts_loss`: what was lost is told in the log, and made anew."""

    def __init__(self, link: Link | ClusterLink, keys: Keys, address: str, *, accepts_loss: bool) -> None:
        self._link = link
        self._keys = tuple(keys.witness(bucket) for bucket in range(BUCKETS))
        self._checks = tuple(keys.check(bucket) for bucket in range(BUCKETS))
        self._address = address
        self._accepts_loss = accepts_loss
        self._seen = [b""] * BUCKETS
        self._own: set[bytes] = set()
        self._told_made = 0
        self._lost: int | None = None
        self._is_used = False

    def of(self, bucket: int) -> tuple[bytes, bytes, bytes]:
        """Of a bucket: the witness's key, the generation that was seen, b"" where none was, and one for a witness to be made."""
        seen = self._seen[bucket]
        return self._keys[bucket], seen, b"" if seen else self._drawn()

    def saw(self, bucket: int, generation: bytes) -> None:
        """A claim has met this generation; the first one counts."""
        self._seen[bucket] = self._seen[bucket] or generation

    def begin(self) -> None:
        """From now on the store is used, and what cannot be seen of it yet is seen by `check`, or by `findings`."""
        self._is_used = True

    async def open(self) -> None:
        """See the witnesses that were not seen yet, all in one write for each node, and make those that are not there.

        Raises StoreUnavailableError, after it has seen as many as it can.
        """
        unseen = [bucket for bucket, seen in enumerate(self._seen) if not seen]
        if not unseen:
            return
        offered = self._drawn()
        replies = await asyncio.gather(
            *(self._link.run(OPEN, self._keys[bucket], offered) for bucket in unseen), return_exceptions=True
        )
        failure = None
        for bucket, reply in zip(unseen, replies, strict=True):
            match reply:
                case [_, bytes(generation)]:
                    self.saw(bucket, generation)
                case BaseException():
                    failure = failure or reply
        # Also by a claim, or by a call whose reply was lost, or not confirmed.
        made = sum(map(self._own.__contains__, self._seen))
        if failure is None and made > self._told_made:
            self._told_made = made
            where = "holds no records" if made == BUCKETS else f"holds no records in {made} of its {BUCKETS} buckets"
            level = logging.INFO if made == BUCKETS else logging.WARNING  # a part alone is never new
            text = "the store, redis at %s, %s of an earlier start; if there was one, they are lost"
            _log.log(level, text, self._address, where)
        if failure is not None:
            raise failure

    async def check(self) -> None:
        """Write a key on each node, beside a witness, and compare that. Raises StoreUnavailableError, of it LostRecordsError."""
        buckets = await self._samples()
        # Two commands, each of one key: where a slot is being moved, one of two keys would be refused (TRYAGAIN).
        *_, there = await asyncio.gather(
            together(self._link.run(CHECK, self._checks[bucket]) for bucket in buckets), self._witnesses_of(buckets)
        )
        seen = [self._seen[bucket] for bucket in buckets]
        lost = [bucket for bucket, was, now in zip(buckets, seen, there, strict=True) if was and was != now]
        if lost:
            await self.lost(lost[0], self._seen[lost[0]])
        else:
            self._lost = None
        if self._is_used:
            await self.open()

    async def findings(self) -> Sequence[Finding]:
        """A loss as an error, by reads alone; what could not be seen at the start is seen then. Raises StoreUnavailableError."""
        if not self._is_used:
            return ()
        buckets = await self._samples()
        there = await self._witnesses_of(buckets)
        for bucket, generation in zip(buckets, there, strict=True):
            seen = self._seen[bucket]
            if seen and generation != seen and not self._accepts_loss:
                return (Finding(Level.ERROR, RECORDS, _MEANING, risk="loss"),)
        with suppress(StoreUnavailableError):  # of which `check` tells
            await self.open()
        return ()

    async def lost(self, bucket: int, seen: bytes) -> None:
        """A witness is not the one that was `seen`. Raises LostRecordsError; where that is accepted, begins anew."""
        if not self._accepts_loss:
            self._lost = bucket
            raise LostRecordsError(f"redis at {self._address}: {_MEANING}")
        if self._seen[bucket] == seen:  # else another caller has just begun anew
            _log.error("redis at %s: %s", self._address, _ACCEPTED)
            self._seen, self._own, self._told_made = [b""] * BUCKETS, set(), 0
            await self.open()

    def _drawn(self) -> bytes:
        """A generation that nobody has drawn before: not even this process, since another may have seen that, before a loss."""
        generation = secrets.token_hex(8).encode()
        self._own.add(generation)
        return generation

    async def vouch(self, bucket: int) -> None:
        """See that an absent record of a bucket is none that was lost. Raises StoreUnavailableError, of it LostRecordsError."""
        seen = self._seen[bucket]
        if seen and not self._accepts_loss:
            (generation,) = await self._witnesses_of((bucket,))
            if generation != seen:
                await self.lost(bucket, seen)

    async def _witnesses_of(self, buckets: Sequence[int]) -> list[Reply]:
        """What the store has as the witness of each."""
        return [*await together(self._link.ask(packed(b"GET", self._keys[bucket]), self._keys[bucket]) for bucket in buckets)]

    async def _samples(self) -> Sequence[int]:
        """A bucket of each node, since a node loses all or nothing, and the last that was found lost."""
        buckets = await self._link.spread(self._keys)
        return buckets if self._lost is None or self._lost in buckets else (*buckets, self._lost)
