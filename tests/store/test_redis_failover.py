"""What the Redis store promises when the server that takes its writes is replaced by another, or was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest

from idemproxy.core.record import Phase
from idemproxy.core.transition import Found, Hold, Settled
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import Durability
from tests.servers import RedisServer
from tests.store.redis_steps import COMPLETION, granted, identity, opened, plain, recorded, recovered, refusal
from tests.store.steps import LEASE, ask
from tests.topologies import Cluster, Watched, cluster, followers, watched

KEYS = 24
"""So many that each node of a cluster has some."""
ONE_REPLICA = Durability(replicas=1, timeout=0.2)


@pytest.fixture(params=[watched, cluster], ids=["sentinel", "cluster"])
def topology(request: pytest.FixtureRequest) -> Iterator[Watched | Cluster]:
    """Redis of each kind that fails over, for one test."""
    with request.param() as running:
        yield running


@pytest.fixture
def sentinels() -> Iterator[Watched]:
    """A primary, two replicas, and three Sentinels, for one test."""
    with watched() as running:
        yield running


def _how(name: str) -> Callable[[RedisServer], None]:
    return {"killed": RedisServer.kill, "stopped": RedisServer.pause}[name]


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_store_follows_the_primary(topology: Watched | Cluster, how: str) -> None:
    """Whether the primary dies or hangs, the same store goes on with its successor, where all that was confirmed is found."""
    async with opened(topology.url, durability=ONE_REPLICA) as store:
        holds = await asyncio.gather(*(granted(store, number) for number in range(KEYS)))
        await asyncio.gather(*(store.complete(identity(number), holds[number], COMPLETION) for number in range(KEYS // 2)))
        await asyncio.to_thread(topology.fail_over, _how(how))
        await recovered(lambda: asyncio.gather(*(recorded(store, number) for number in range(KEYS))))

        records = [await recorded(store, number) for number in range(KEYS)]

    assert [hold.fence for hold in holds] == [record.fence for record in records]
    assert [Phase.COMPLETED] * (KEYS // 2) + [Phase.IN_FLIGHT] * (KEYS // 2) == [record.phase for record in records]


async def test_a_stale_primary_is_left_when_it_confirms_nothing(sentinels: Watched) -> None:
    """One that slept through a failover grants no claim, and the store then asks the Sentinels instead of waiting for its end."""
    async with opened(sentinels.url, durability=ONE_REPLICA) as behind:
        await granted(behind, 1)
        old = await asyncio.to_thread(sentinels.fail_over, RedisServer.pause)
        async with opened(sentinels.url, durability=ONE_REPLICA) as ahead:
            await recovered(lambda: granted(ahead, 2))
            await ahead.complete(identity(), await granted(ahead), COMPLETION)
        await asyncio.to_thread(sentinels.regroup)

        old.resume()
        said = await refusal(behind.claim(identity(), ask(owner="another")))
        await recovered(lambda: behind.claim(identity(), ask(owner="another")))
        found = await behind.claim(identity(), ask(owner="another"))
        async with plain(old.url) as stale:
            role = (await stale.info("replication"))["role"]

    assert "the write is not confirmed: 0 of 1 replicas have it" in said
    assert isinstance(found, Found)
    assert COMPLETION.answer == found.record.answer
    assert "master" == role  # it does not know better itself, and took no part in this


async def test_a_renewal_counts_when_a_replica_has_it(sentinels: Watched) -> None:
    """A holder does not take its lease for prolonged by a primary whose successor would give its record to another."""
    async with opened(sentinels.url, durability=ONE_REPLICA) as store:
        held = [(identity(), await granted(store))]
        confirmed = await store.renew(held, LEASE)
        primary = await asyncio.to_thread(sentinels.primary)
        replicas = followers(sentinels.servers, primary)
        for replica in replicas:
            replica.pause()
        said = await refusal(store.renew(held, LEASE))
        for replica in replicas:
            replica.resume()

        await recovered(lambda: store.renew(held, LEASE))

    assert [True] == confirmed
    assert "the write is not confirmed: 0 of 1 replicas have it" in said


async def test_a_holder_completes_at_the_successor(topology: Watched | Cluster) -> None:
    """What was claimed at one primary is completed at the next one, by the same hold, and confirmed by its replicas."""
    async with opened(topology.url, durability=ONE_REPLICA) as store:
        holds = await asyncio.gather(*(granted(store, number) for number in range(KEYS)))
        old = await asyncio.to_thread(topology.fail_over, RedisServer.kill)
        await asyncio.to_thread(old.start)
        await asyncio.to_thread(topology.bring_back, old)
        await recovered(lambda: _complete_all(store, holds))

        records = [await recorded(store, number) for number in range(KEYS)]

    assert [(Phase.COMPLETED, hold.fence) for hold in holds] == [(record.phase, record.fence) for record in records]


async def _complete_all(store: RedisStore, holds: Sequence[Hold]) -> None:
    settled = await asyncio.gather(*(store.complete(identity(number), hold, COMPLETION) for number, hold in enumerate(holds)))
    assert {Settled.WRITTEN} == set(settled)
