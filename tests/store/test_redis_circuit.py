"""A server that takes connections and answers nothing: the first wait for it, all others are told at once, until it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

import pytest
from redis.crc import key_slot

from idemproxy.core.transition import Settled
from idemproxy.store import redis_link
from idemproxy.store.base import StoreUncertainError
from idemproxy.store.redis import RedisStore
from tests.servers import RedisServer, redis_server, relay
from tests.store.redis_harness import keys
from tests.store.redis_steps import COMPLETION, granted, identity, opened, recovered, refusal
from tests.store.steps import ask
from tests.topologies import cluster

DEADLINE = 1.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A durable server, to be stopped from running."""
    with redis_server(appendonly=True) as running:
        yield running


async def _seconds(*operations: Awaitable[object]) -> float:
    """How long they take together."""
    started = asyncio.get_running_loop().time()
    await asyncio.gather(*operations)
    return asyncio.get_running_loop().time() - started


async def _refusals(store: RedisStore, numbers: range, said: list[str]) -> None:
    """Claims one after the other; what they are told."""
    said += [await refusal(store.claim(identity(number), ask())) for number in numbers]


async def test_after_the_first_deadline_callers_are_told_at_once(server: RedisServer) -> None:
    """Those who were waiting wait for the deadline; whoever comes later, one by one, does not, and one attempt is under way."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", deadline=DEADLINE) as store:
        await granted(store)
        server.pause()
        first = await _seconds(*(refusal(store.claim(identity(number), ask())) for number in range(1, 65)))
        connections = between.connections
        said: list[str] = []
        later = await _seconds(_refusals(store, range(65, 70), said))
        made = between.connections - connections
        server.resume()
        await recovered(store.check)

    assert DEADLINE <= first < 2 * DEADLINE
    assert later < DEADLINE
    assert made <= 1
    assert [True] * 5 == ["it did not reply within the deadline" in text for text in said]


async def test_one_connection_when_it_is_back(server: RedisServer) -> None:
    """The attempt that was under way when the server runs again is the connection that all use: nobody makes another."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", deadline=DEADLINE) as store:
        hold = await granted(store)
        server.pause()
        await refusal(store.check())
        await refusal(store.check())
        waiting = between.connections
        server.resume()
        await recovered(store.check)
        settled = await asyncio.gather(*(store.complete(identity(), hold, COMPLETION) for _ in range(64)))

    assert 2 == waiting
    assert 2 == between.connections
    assert {Settled.WRITTEN} == set(settled)


async def test_a_server_that_is_not_known_to_be_out_is_waited_for(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The circuit opens by a failure alone: without one, a caller waits for a connection until its own deadline."""
    monkeypatch.setattr(redis_link, "_MOMENT", 0.0)
    async with opened(server.url) as store:
        hold = await granted(store)

    assert "owner" == hold.owner


async def test_a_lost_claim_stays_uncertain_while_the_server_is_out(server: RedisServer) -> None:
    """When the reply was lost and then no connection came, the claim may yet be granted, and the error says so."""
    async with opened(server.url, deadline=DEADLINE) as store:
        await store.check()
        server.pause()
        first = asyncio.create_task(refusal(store.claim(identity(1), ask())))
        await asyncio.sleep(DEADLINE / 4)  # so that the first one's deadline ends the connection of both
        with pytest.raises(StoreUncertainError) as raised:
            await store.claim(identity(2), ask())
        await first
        server.resume()

    assert "the connection was lost before the reply" in str(raised.value)


async def test_a_node_of_a_cluster_that_hangs() -> None:
    """Keys of a node that nobody stands in for are refused fast once it is known to hang, and the others go on."""
    with cluster(cluster_require_full_coverage="no") as nodes:
        async with opened(nodes.url, prefix="circuit:", deadline=DEADLINE) as store:
            lost, kept = _number_of(range(5461)), _number_of(range(5461, 16_384))
            await granted(store, lost)
            for server in (nodes.servers[0], nodes.servers[3]):  # the primary of the first slots, and its replica
                server.pause()
            waited = [await _seconds(refusal(store.claim(identity(lost), ask()))) for _ in range(6)]
            other = await _seconds(granted(store, kept))
            for server in (nodes.servers[0], nodes.servers[3]):
                server.resume()
            await recovered(lambda: store.claim(identity(lost), ask()))

    assert DEADLINE / 2 < waited[0] < 2 * DEADLINE
    assert [True] * 2 == [seconds < DEADLINE / 2 for seconds in waited[-2:]]
    assert other < DEADLINE


def _number_of(slots: range) -> int:
    """Of an identity whose record has one of these slots."""
    return next(number for number in range(100) if key_slot(keys("circuit:", identity(number))[0].encode()) in slots)
