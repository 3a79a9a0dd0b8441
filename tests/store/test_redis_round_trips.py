"""How often the Redis store crosses the network, counted on the wire: for a first write and a replay, alone and in a crowd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from idemproxy.core.transition import Doubt, Found, Settled
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import Durability
from tests.process.asking import ask as ask_proxy
from tests.process.upstream import upstream
from tests.processes import proxy
from tests.servers import RedisServer, Relay, redis_server, relay
from tests.store.redis_steps import COMPLETION, granted, identity, opened, recovered
from tests.store.steps import LEASE, ask


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all; each test has records of its own."""
    with redis_server(repl_diskless_sync_delay="0") as running:
        yield running


@pytest.fixture
async def between(server: RedisServer) -> AsyncIterator[Relay]:
    """What counts."""
    async with relay(server.port) as counting:
        yield counting


@pytest.fixture
async def store(server: RedisServer, between: Relay, request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """A connected store whose every byte is counted."""
    async with opened(f"redis://127.0.0.1:{between.port}", f"{request.node.name}:") as opening:
        yield opening


class Count:
    """What was sent since this was made: in how many writes, and how often a command was in it."""

    def __init__(self, between: Relay) -> None:
        self._between = between
        self._before = len(between.sent)

    @property
    def writes(self) -> int:
        """Bytes that were there to be read together: one after another's reply, each is a round trip."""
        return len(self._between.sent) - self._before

    def of(self, command: bytes) -> int:
        """How many of this command."""
        return b"".join(self._between.sent[self._before :]).count(b"\r\n%b\r\n" % command)


async def test_a_first_write_is_two_round_trips(store: RedisStore, between: Relay) -> None:
    """A claim that is granted crosses once, and its completion once."""
    count = Count(between)

    hold = await granted(store)
    claimed = count.writes
    settled = await store.complete(identity(), hold, COMPLETION)

    assert Settled.WRITTEN == settled
    assert (1, 2, 2) == (claimed, count.writes, count.of(b"EVALSHA"))


async def test_a_replay_is_one_round_trip(store: RedisStore, between: Relay) -> None:
    """A claim that finds a completed record brings its answer along."""
    await store.complete(identity(), await granted(store), COMPLETION)
    count = Count(between)

    found = await store.claim(identity(), ask())

    assert isinstance(found, Found)
    assert COMPLETION.answer == found.record.answer
    assert (1, 1) == (count.writes, count.of(b"EVALSHA"))


async def test_every_other_step_is_one_round_trip(store: RedisStore, between: Relay) -> None:
    """To release, to mark unknown and to read cross once each."""
    first, second = await granted(store, 1), await granted(store, 2)
    count = Count(between)

    await store.release(identity(1), first)
    await store.mark_unknown(identity(2), second, Doubt(500))
    await store.read(identity(2))

    assert (3, 3) == (count.writes, count.of(b"EVALSHA"))


async def test_confirmation_costs_no_round_trip_of_its_own(server: RedisServer, between: Relay) -> None:
    """The question whether a replica has a write leaves together with the write: a first write is two round trips still."""
    url = f"redis://127.0.0.1:{between.port}/0"
    with redis_server(replicaof=f"127.0.0.1 {server.port}"):
        async with opened(url, "confirmed:", deadline=10.0, durability=Durability(replicas=1, timeout=5.0)) as store:
            await recovered(lambda: granted(store, 1))
            count = Count(between)

            await store.complete(identity(), await granted(store), COMPLETION)
            crossed = count.writes, count.of(b"EVALSHA"), count.of(b"WAIT")

    assert (2, 2, 2) == crossed


async def test_a_crowd_of_first_writes_shares_a_connection_and_its_writes(store: RedisStore, between: Relay) -> None:
    """64 first writes at once, 128 commands, leave over one connection in fewer than 16 writes."""
    count = Count(between)

    async def first_write(number: int) -> Settled:
        return await store.complete(identity(number), await granted(store, number), COMPLETION)

    settled = await asyncio.gather(*map(first_write, range(64)))

    assert [Settled.WRITTEN] * 64 == settled
    assert (1, 128) == (between.connections, count.of(b"EVALSHA"))
    assert count.writes < 16


async def test_a_crowd_of_replays_shares_a_connection_and_its_writes(store: RedisStore, between: Relay) -> None:
    """64 replays at once leave over one connection in at most four writes."""
    await store.complete(identity(), await granted(store), COMPLETION)
    count = Count(between)

    found = await asyncio.gather(*(store.claim(identity(), ask()) for _ in range(64)))

    assert [COMPLETION.answer] * 64 == [each.record.answer for each in found if isinstance(each, Found)]
    assert (1, 64) == (between.connections, count.of(b"EVALSHA"))
    assert count.writes <= 4


async def test_the_leases_of_all_are_renewed_in_one_write(store: RedisStore, between: Relay) -> None:
    """The heartbeat of 32 holders crosses once."""
    holds = [(identity(number), await granted(store, number)) for number in range(32)]
    count = Count(between)

    renewed = await store.renew(holds, LEASE)

    assert [True] * 32 == renewed
    assert (1, 32) == (count.writes, count.of(b"EVALSHA"))


async def test_a_request_through_the_proxy_costs_no_more(server: RedisServer, between: Relay) -> None:
    """Of the whole program: a first request crosses to the store twice, and its retry once."""
    async with AsyncExitStack() as stack:
        api = stack.enter_context(upstream())
        front = proxy("--upstream", api.url, "--store", f"redis://127.0.0.1:{between.port}/0")
        program = await asyncio.to_thread(front.__enter__)
        stack.push_async_callback(asyncio.to_thread, front.__exit__, None, None, None)
        count = Count(between)

        first = await asyncio.to_thread(ask_proxy, program.url, "order-17")
        crossed = count.of(b"EVALSHA")
        retry = await asyncio.to_thread(ask_proxy, program.url, "order-17")

    assert (201, 201, first.body) == (first.status, retry.status, retry.body)
    assert (1, 2, 3) == (len(api.arrived), crossed, count.of(b"EVALSHA"))
