"""Steps that the tests of the Redis store share: stores and plain clients that close themselves, claims, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from idemproxy.core.record import MICROSECONDS, Identity, Record
from idemproxy.core.transition import Ask, Completion, Granted, Hold
from idemproxy.store.base import StoreUnavailableError
from idemproxy.store.redis import RedisStore

LEASE = 15 * MICROSECONDS
DAY = 86_400 * MICROSECONDS
COMPLETION = Completion(status=201, retention=DAY, expired_mark=7 * DAY, answer=b"\x01201 an answer \xff\x00")
WITHIN = 10.0
"""Seconds: far more than anything here takes, so that a hang becomes a failure."""


@asynccontextmanager
async def opened(url: str, prefix: str = "test:", deadline: float = 2.0) -> AsyncIterator[RedisStore]:
    """A started store."""
    store = RedisStore(url, prefix=prefix, deadline=deadline)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def plain(url: str) -> AsyncIterator[Redis]:
    """A plain client, for what an operator or an accident does."""
    async with Redis.from_url(url, protocol=2) as client:
        yield client


def identity(number: int = 0) -> Identity:
    """Distinct for each number."""
    return Identity("shared", "payments", f"key{number:040d}")


def wish(owner: str = "owner", *, reclaim: int | None = None) -> Ask:
    """A claim by `owner`, always for the same thing."""
    return Ask(fingerprint="v1:print", owner=owner, route="charges", lease=LEASE, reclaim=reclaim)


async def granted(store: RedisStore, number: int = 0, owner: str = "owner") -> Hold:
    """The hold of a claim that must be granted."""
    answer = await store.claim(identity(number), wish(owner))
    assert isinstance(answer, Granted)
    return answer.hold


async def recorded(store: RedisStore, number: int = 0) -> Record:
    """A record that must be there."""
    record = await store.read(identity(number))
    assert record is not None
    return record


async def refusal(operation: Awaitable[object]) -> str:
    """What the error says, of an operation that must not be confirmed."""
    async with asyncio.timeout(WITHIN):
        with pytest.raises(StoreUnavailableError) as raised:
            await operation
    return str(raised.value)


async def recovered(operation: Callable[[], Awaitable[object]]) -> None:
    """Ask until the store confirms, as clients do."""
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                await operation()
            except StoreUnavailableError:
                await asyncio.sleep(0.01)
            else:
                return
