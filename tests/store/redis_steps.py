"""Steps that the tests of the Redis store share: stores and plain clients that close themselves, claims, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from idemproxy.core.record import Identity, Record
from idemproxy.core.transition import Hold
from idemproxy.store.base import StoreUnavailableError
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import AS_CONFIGURED, Durability
from tests.store import steps
from tests.store.steps import WITHIN, ask, completion

COMPLETION = completion()
NARROW: Final = (
    *(
        "+evalsha",
        "+script|load",
        "+publish",
        "+subscribe",
        "+scan",
        "+lrange",
        "+hmget",
        "+hset",
        "+hdel",
        "+get",
        "+set",
        "+del",
    ),
    *("+rpush", "+persist", "+pexpireat", "+time", "+ping"),
)
"""The commands that a user of the server must be allowed, and no other: neither CONFIG nor INFO."""


@asynccontextmanager
async def opened(
    url: str, prefix: str = "test:", deadline: float = 2.0, durability: Durability = AS_CONFIGURED
) -> AsyncIterator[RedisStore]:
    """A started store."""
    store = RedisStore(url, prefix=prefix, deadline=deadline, durability=durability)
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


async def needs_waitaof(url: str) -> None:
    """Skip the test where the server is older than the command."""
    async with plain(url) as client:
        try:
            await client.execute_command("WAITAOF", 0, 0, 1)  # type: ignore[no-untyped-call]  # redis-py leaves it bare
        except ResponseError as error:
            if "unknown command" in str(error):
                pytest.skip("WAITAOF came with Redis 7.2")


def identity(number: int = 0) -> Identity:
    """Distinct for each number."""
    return steps.identity(f"key{number:040d}")


async def granted(store: RedisStore, number: int = 0, owner: str = "owner") -> Hold:
    """The hold of a claim that must be granted."""
    return await steps.granted(store, identity(number), ask(owner=owner))


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
