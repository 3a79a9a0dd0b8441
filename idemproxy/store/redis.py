"""The Redis store: each transition is one Lua script on the server's clock, sent over one shared connection.

For one record there are up to three keys, whose hash tag keeps them in one slot: `PREFIX{BUCKET}SCOPE/UPSTREAM/KEY-HASH`, a
hash, the same with `:answer`, the packed answer, and with `:audit`, what persons did to it. What they hold, and what expires
when, is said in lua/prelude.lua. A bucket has a witness too, `PREFIX{BUCKET}witness`, which tells of a loss (redis_witness).
Redis 6.2 and newer, and Valkey. What the server has acknowledged is as durable as it is configured to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, cast

from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled, Verb
from idemproxy.store import base_finding, base_list, redis_checks, redis_form
from idemproxy.store.base import AUDIT_KEPT, GivenBackError, Page, StoreError, StoreUnavailableError, Wake
from idemproxy.store.base_finding import Finding
from idemproxy.store.redis_cluster import ClusterLink
from idemproxy.store.redis_durability import AS_CONFIGURED, Durability
from idemproxy.store.redis_endpoint import USUAL_TLS, Endpoint, TlsFiles
from idemproxy.store.redis_fault import UnconfirmedError
from idemproxy.store.redis_form import Keys
from idemproxy.store.redis_journal import RedisJournals
from idemproxy.store.redis_link import Link, together
from idemproxy.store.redis_script import (
    CLAIM,
    COMPLETE,
    FORGET,
    MARK_UNKNOWN,
    READ,
    RELEASE,
    RENEW,
    RESOLVE,
    Part,
    Script,
    packed,
)
from idemproxy.store.redis_url import Topology, read_url
from idemproxy.store.redis_wake import RedisWakes
from idemproxy.store.redis_witness import Witnesses

_SETTLED: Final = {settled.value.encode(): settled for settled in Settled}
_ACTED: Final = {acted.value.encode(): acted for acted in Acted}
_SCANS: Final = 32
"""How often the server is asked for a page, at most: beside few records there are the witnesses."""
_LAST_CURSOR: Final = 2**80
"""Above every cursor of a server, and of a cluster of as many nodes as there can be."""


class RedisStore:
    """Records on the Redis server, or servers, at `url` (redis_url).

    `prefix` begins every key and channel; `deadline` is the longest that an operation waits, in seconds, connecting included;
    `durability` says when a claim or a completion counts; `accepts_loss`: so that the server may lose records,
    and operations run again; `only_looks`: nothing is claimed, so that no witness is made.
    Raises StoreError for a URL or a prefix that cannot be used.
    """

    name: Final = "redis"

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "idemproxy:",
        deadline: float = 2.0,
        durability: Durability = AS_CONFIGURED,
        tls: TlsFiles = USUAL_TLS,
        accepts_loss: bool = False,
        only_looks: bool = False,
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise StoreError(
                f"store.prefix {prefix!r} holds a brace; braces mark the part of a key that decides its cluster slot"
            )
        self._keys = Keys(prefix)
        self._channel = f"{prefix}settled".encode()
        self._deadline = deadline
        self._durability = durability
        place = read_url(url)
        endpoint = Endpoint(place, deadline, tls)
        if place.topology is Topology.CLUSTER:
            self._link: Link | ClusterLink = ClusterLink(endpoint, durability)
            self._wakes = RedisWakes(self._link, self._channel, self._keys)
        else:
            self._link = Link(endpoint, durability)
            self._wakes = RedisWakes(endpoint, self._channel, self._keys)
        self.journals: Final = RedisJournals(self._link, prefix)
        self._only_looks = only_looks
        self._witnesses = Witnesses(self._link, self._keys, endpoint.address, accepts_loss=accepts_loss)

    async def start(self) -> None:
        """Connect, and see the witnesses; where that cannot be now, `check`, `inspect` and the first operations do it."""
        if not self._only_looks:
            self._witnesses.begin()
        with suppress(StoreUnavailableError):
            await self._link.reach(asyncio.get_running_loop().time() + self._deadline)
            if not self._only_looks:
                await self._witnesses.open()

    async def close(self) -> None:
        """As base.Store.close."""
        await self._wakes.close()
        await self._link.close()

    async def check(self) -> None:
        """Write a key, as durably as a claim: a server that answers may be full, read-only, without its replicas, or emptied."""
        await self._witnesses.check()

    async def inspect(self) -> Sequence[Finding]:
        """As base.Store.inspect, on every server that takes writes; of the others as much as those tell."""
        servers = await self._link.servers()
        seen = await asyncio.gather(*map(redis_checks.see, servers), return_exceptions=True)  # so that none is left unheard
        found: dict[str, Sequence[Finding]] = {}
        for server, each in zip(servers, seen, strict=True):
            if isinstance(each, BaseException):
                raise each
            found[server.address] = redis_checks.look(each, self._durability)
        return [*base_finding.merged(found), *await self._witnesses.findings()]

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As base.Store.claim."""
        if watched:
            await self._wakes.ready()
        bucket, *keys = self._keys.place(identity)
        reclaim = b"" if ask.reclaim is None else ask.reclaim
        asked = (ask.fingerprint, ask.owner, ask.route, ask.lease, reclaim, b"1" if watched else b"")
        while True:
            witness, seen, offered = self._witnesses.of(bucket)
            try:
                reply = await self._link.run(CLAIM, *keys, witness, self._channel, *asked, seen, offered)
            except UnconfirmedError as error:
                if ask.reclaim is None and await self._gave_back(identity, ask, error):
                    raise GivenBackError(str(error)) from error
                raise
            match reply:
                case [b"granted", int(fence), int(claimed_at), *generation]:
                    if generation and not seen:
                        self._witnesses.saw(bucket, generation[0])  # type: ignore[arg-type]  # bytes, as the script says
                    # Also when the claim was asked again: the owner's nonce was drawn for this ask alone.
                    return Granted(Hold(fence, ask.owner, ask.fingerprint, ask.route, claimed_at))
                case [b"lost"]:
                    await self._witnesses.lost(bucket, seen)  # which returns where that is accepted: then it is asked once more
                case _:
                    return Found(redis_form.record(reply))

    async def _gave_back(self, identity: Identity, ask: Ask, error: UnconfirmedError) -> bool:
        """Whether a claim that was granted, and not confirmed, is free again: nothing is sent under it."""
        match error.written:
            case [_, int(fence), *_]:
                with suppress(StoreUnavailableError):
                    return await self._settle(RELEASE, identity, fence, ask.owner) is not Settled.STALE
        return False

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """As base.Store.renew; one script for each record, since each has a slot of its own, all in one write."""
        replies = await together(
            self._link.run(RENEW, self._keys.of(identity)[0], hold.fence, hold.owner, lease) for identity, hold in holds
        )
        return [reply == b"renewed" for reply in replies]

    def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Coroutine[Any, Any, Settled]:
        """As base.Store.complete."""
        return self._settle(COMPLETE, identity, *redis_form.holding(hold), *redis_form.fulfilling(completion))

    def release(self, identity: Identity, hold: Hold) -> Coroutine[Any, Any, Settled]:
        """As base.Store.release."""
        return self._settle(RELEASE, identity, hold.fence, hold.owner)

    def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Coroutine[Any, Any, Settled]:
        """As base.Store.mark_unknown."""
        known = (redis_form.number(doubt.since), redis_form.number(doubt.status), *redis_form.kept(doubt.answer))
        back = (b"", b"") if doubt.back_to is None else doubt.back_to
        return self._settle(MARK_UNKNOWN, identity, *redis_form.holding(hold), *known, *back)

    async def read(self, identity: Identity) -> Record | None:
        """As base.Store.read."""
        reply = await self._link.run(READ, *self._keys.of(identity), b"1")
        if reply is None:
            await self._witnesses.vouch(self._keys.bucket(identity))
            return None
        return redis_form.record(reply)

    async def list(self, phase: Phase | None, limit: int, cursor: str) -> Page:
        """As base.Store.list, by the server's SCAN, whose cursor is ours. Raises ValueError for a cursor that is none.

        One SCAN for each page, and some more while there are only other keys: a page may be short, or empty with a cursor, and a
        record may be listed twice.
        """
        following = base_list.place(cursor, _LAST_CURSOR) or 0
        identities: list[Identity] = []
        for _ in range(_SCANS):
            following, keys = await self._link.scan(following, self._keys.pattern(), base_list.size(limit))
            identities = [identity for key in keys if (identity := self._keys.identity(key)) is not None]
            if identities or not following:
                break
        told = await together(self._link.run(READ, *self._keys.of(identity), b"") for identity in identities)
        listed = [
            (identity, redis_form.record(each)) for identity, each in zip(identities, told, strict=True) if each is not None
        ]
        return Page(
            records=[(identity, record) for identity, record in listed if phase in (None, record.phase)],
            cursor=str(following or ""),
        )

    async def resolve(self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str) -> Acted:
        """As base.Store.resolve."""
        if resolution is None:
            return await self._act(RESOLVE, identity, fence, who, why, Verb.RESOLVE_NOT_EXECUTED.value, *[b""] * 6)
        completed = redis_form.fulfilling(resolution)
        return await self._act(RESOLVE, identity, fence, who, why, Verb.RESOLVE_COMPLETED.value, *completed)

    async def forget(self, identity: Identity, fence: int, who: str, why: str) -> Acted:
        """As base.Store.forget."""
        return await self._act(FORGET, identity, fence, who, why)

    async def audit(self, identity: Identity) -> Sequence[Act]:
        """As base.Store.audit."""
        key = self._keys.audit(identity)
        reply = await self._link.ask(packed(b"LRANGE", key, b"0", b"-1"), key)
        return [redis_form.act(entry) for entry in cast("Sequence[bytes]", reply)]

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As base.Store.watch."""
        return self._wakes.watch(identity)

    async def _settle(self, script: Script, identity: Identity, *arguments: Part) -> Settled:
        """Run a script that settles, then wake those who wait here; it told the other processes itself."""
        _, record, answer = self._keys.place(identity)
        reply = await self._link.run(script, record, answer, self._channel, *arguments)
        settled = _SETTLED[reply]  # type: ignore[index]  # bytes, as the scripts say
        if settled is not Settled.STALE:
            self._wakes.wake(identity)
        return settled

    async def _act(self, script: Script, identity: Identity, fence: int, who: str, why: str, *arguments: Part) -> Acted:
        """Run the script of a person's act, then wake those who wait here; it told the other processes itself."""
        keys = (*self._keys.of(identity), self._keys.audit(identity))
        acted = _ACTED[cast("bytes", await self._link.run(script, *keys, self._channel, fence, who, why, AUDIT_KEPT, *arguments))]
        if acted is Acted.DONE:
            self._wakes.wake(identity)
        return acted
