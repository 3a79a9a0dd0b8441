"""What the contract suite needs to drive the Redis store: fresh stores on the same data, the passing of time, and loss."""

from __future__ import annotations

import uuid
from typing import Final

from redis.asyncio import Redis, RedisCluster

from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_endpoint import USUAL_TLS, TlsFiles
from idemproxy.store.redis_form import Keys

TIMES: Final = (b"claimed_at", b"lease_until", b"settled_at", b"expires_at", b"forget_at")


class RedisHarness:
    """Records under a prefix of their own on the server, or servers, at `url`; `client` reaches the same data."""

    name = "redis"

    def __init__(self, url: str, client: Redis | RedisCluster, tls: TlsFiles = USUAL_TLS) -> None:
        self._url = url
        self._tls = tls
        self._prefix = f"test-{uuid.uuid4().hex}:"
        self._stores: list[RedisStore] = []
        self._client = client

    async def open(self) -> RedisStore:
        """Another store on the same data, started."""
        store = RedisStore(self._url, prefix=self._prefix, tls=self._tls)
        self._stores.append(store)
        await store.start()
        return store

    async def advance(self, seconds: float) -> None:
        """Make `seconds` pass for every record: its times and expiries move back, since the server's clock cannot be moved on."""
        back = round(seconds * MICROSECONDS)
        async for key in self._client.scan_iter(match=f"{self._prefix}{{*", count=10_000):
            if await self._client.type(key) == b"hash":
                fields = await self._client.hgetall(key)
                for name in TIMES:
                    if fields.get(name):
                        await self._client.hincrby(key, name, -back)
            left = await self._client.pttl(key)  # milliseconds; negative when it has no expiry
            if left >= 0:
                await self._client.pexpire(key, left - back // 1000)  # which deletes it, when that is not positive

    async def lose(self, identity: Identity) -> None:
        """Delete a record behind everyone's back."""
        await self._client.delete(*keys(self._prefix, identity))

    async def close(self) -> None:
        """Close every store that was opened."""
        for store in self._stores:
            await store.close()
        await self._client.flushall()  # or `advance` of all later tests would look through what is left of this one
        await self._client.aclose()


def audit_key(prefix: str, identity: Identity) -> str:
    """The key of its audit trail."""
    return Keys(prefix).audit(identity).decode()


def keys(prefix: str, identity: Identity) -> tuple[str, str]:
    """The keys of a record, and of its answer."""
    record, answer = Keys(prefix).of(identity)
    return record.decode(), answer.decode()
