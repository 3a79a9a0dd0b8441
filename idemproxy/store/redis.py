"""The Redis store: each transition is one Lua script on the server's clock, sent over one shared connection.

For one record there are two keys, whose hash tag keeps them in one slot: `PREFIX{SCOPE/UPSTREAM/KEY-HASH}`, a hash, and the
same with `:answer`, the packed answer. What the hash holds, and what expires when, is said in lua/prelude.lua. Redis 6.2 and
newer, and Valkey. What the server has acknowledged is as durable as the server is configured to make it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, TypeAlias, cast

from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Ask, Completion, Found, Granted, Hold, Settled
from idemproxy.store.base import StoreError, StoreUnavailableError, Wake
from idemproxy.store.redis_link import Endpoint, Link
from idemproxy.store.redis_script import CLAIM, COMPLETE, MARK_UNKNOWN, READ, RELEASE, RENEW, Script, packed
from idemproxy.store.redis_wake import RedisWakes

_PHASES: Final = {phase.value.encode(): phase for phase in Phase}
_SETTLED: Final = {settled.value.encode(): settled for settled in Settled}

_Told: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes | None]
"""A record as the scripts tell it: `told` in lua/prelude.lua."""


class RedisStore:
    """Records on the Redis server at `url`.

    `prefix` begins every key and channel; `deadline` is the longest that an operation waits, in seconds, connecting included.
    Raises StoreError for a URL or a prefix that cannot be used.
    """

    name: Final = "redis"

    def __init__(self, url: str, *, prefix: str = "idemproxy:", deadline: float = 2.0) -> None:
        if "{" in prefix or "}" in prefix:
            raise StoreError(
                f"store.prefix {prefix!r} holds a brace; braces mark the part of a key that decides its cluster slot"
            )
        self._prefix = prefix
        self._channel = f"{prefix}settled".encode()
        self._probe = packed(b"SET", f"{prefix}probe".encode(), b"1", b"PX", b"60000")
        self._deadline = deadline
        endpoint = Endpoint(url, deadline)
        self._link = Link(endpoint)
        self._wakes = RedisWakes(endpoint, self._channel, prefix)

    async def start(self) -> None:
        """Connect, so that the first operation need not; a server that is down is met again by the first operation."""
        with suppress(StoreUnavailableError):
            await self._link.reach(asyncio.get_running_loop().time() + self._deadline)

    async def close(self) -> None:
        """As base.Store.close."""
        await self._wakes.close()
        await self._link.close()

    async def check(self) -> None:
        """Write a key: a server that answers may still be full, read-only, or unable to save."""
        await self._link.ask(self._probe)

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As base.Store.claim."""
        if watched:
            await self._wakes.ready()
        reply = await self._link.run(
            CLAIM,
            *self._keys(identity),
            self._channel,
            ask.fingerprint.encode(),
            ask.owner.encode(),
            ask.route.encode(),
            b"%d" % ask.lease,
            _number(ask.reclaim),
            b"1" if watched else b"",
        )
        match reply:
            case [b"granted", int(fence), int(claimed_at)]:
                # Also when the claim was asked again: the owner's nonce was drawn for this ask alone.
                return Granted(Hold(fence, ask.owner, ask.fingerprint, ask.route, claimed_at))
            case _:
                return Found(_record(cast("_Told", reply)))

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """As base.Store.renew; one script for each record, since each has a slot of its own, all in one write."""
        length = b"%d" % lease
        replies = await asyncio.gather(
            *(
                self._link.run(RENEW, self._keys(identity)[0], b"%d" % hold.fence, hold.owner.encode(), length)
                for identity, hold in holds
            ),
            return_exceptions=True,  # so that none is left unheard when one fails
        )
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        return [reply == 1 for reply in replies]

    async def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Settled:
        """As base.Store.complete."""
        return await self._settle(
            COMPLETE,
            identity,
            *_hold(hold),
            b"%d" % completion.status,
            b"%d" % completion.retention,
            b"%d" % completion.expired_mark,
            *_kept(completion.answer),
        )

    async def release(self, identity: Identity, hold: Hold) -> Settled:
        """As base.Store.release."""
        return await self._settle(RELEASE, identity, b"%d" % hold.fence, hold.owner.encode())

    async def mark_unknown(self, identity: Identity, hold: Hold, status: int | None, answer: bytes | None) -> Settled:
        """As base.Store.mark_unknown."""
        return await self._settle(MARK_UNKNOWN, identity, *_hold(hold), _number(status), *_kept(answer))

    async def read(self, identity: Identity) -> Record | None:
        """As base.Store.read."""
        reply = await self._link.run(READ, *self._keys(identity))
        return None if reply is None else _record(cast("_Told", reply))

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As base.Store.watch."""
        return self._wakes.watch(identity)

    async def _settle(self, script: Script, identity: Identity, *arguments: bytes) -> Settled:
        """Run a script that settles, then wake those who wait here; it told the other processes itself."""
        reply = await self._link.run(script, *self._keys(identity), self._channel, *arguments)
        settled = _SETTLED[cast("bytes", reply)]
        if settled is not Settled.STALE:
            self._wakes.wake(identity)
        return settled

    def _keys(self, identity: Identity) -> tuple[bytes, bytes]:
        record = f"{self._prefix}{{{identity}}}".encode()
        return record, record + b":answer"


def _hold(hold: Hold) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    return b"%d" % hold.fence, hold.owner.encode(), hold.fingerprint.encode(), hold.route.encode(), b"%d" % hold.claimed_at


def _kept(answer: bytes | None) -> tuple[bytes, bytes]:
    return (b"", b"") if answer is None else (b"1", answer)


def _number(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number


def _record(told: _Told) -> Record:
    phase, fingerprint, fence, owner, route, claimed_at, lease_until, settled_at, expires_at, forget_at, status, answer = told
    return Record(
        phase=_PHASES[phase],
        fingerprint=fingerprint.decode(),
        fence=int(fence),
        owner=owner.decode(),
        route=route.decode(),
        claimed_at=int(claimed_at),
        lease_until=int(lease_until),
        settled_at=int(settled_at) if settled_at else None,
        expires_at=int(expires_at) if expires_at else None,
        forget_at=int(forget_at) if forget_at else None,
        status=int(status) if status else None,
        answer=answer,
    )
