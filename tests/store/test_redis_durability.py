"""What `store.durability` promises: no claim is granted, and no completion counts, that only one server would know of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from idemproxy.core.record import Phase
from idemproxy.core.transition import Found, Settled
from idemproxy.store.base import GivenBackError
from idemproxy.store.redis_durability import Durability, Patience
from tests.servers import RedisServer, Relay, redis_server, relay
from tests.store.redis_steps import COMPLETION, granted, identity, needs_waitaof, opened, recorded, recovered, refusal
from tests.store.steps import ask

ONE_REPLICA = Durability(replicas=1, timeout=0.3)


@pytest.fixture
def primary() -> Iterator[RedisServer]:
    """A server that may have a replica."""
    with redis_server(repl_diskless_sync_delay="0") as running:
        yield running


@pytest.fixture
def replica(primary: RedisServer) -> Iterator[RedisServer]:
    """Its replica."""
    with redis_server(replicaof=f"127.0.0.1 {primary.port}") as running:
        yield running


async def test_what_is_confirmed_is_on_the_replica(primary: RedisServer, replica: RedisServer) -> None:
    """A claim that was granted, and a completion that was written, are found on a replica at once."""
    async with opened(primary.url, durability=ONE_REPLICA) as store:
        await recovered(lambda: granted(store, 1))

        hold = await granted(store)
        async with opened(replica.url) as other:
            in_flight = await recorded(other)
            settled = await store.complete(identity(), hold, COMPLETION)
            completed = await recorded(other)

    assert (Phase.IN_FLIGHT, hold.fence, Settled.WRITTEN) == (in_flight.phase, in_flight.fence, settled)
    assert (Phase.COMPLETED, COMPLETION.answer) == (completed.phase, completed.answer)


async def test_without_its_replica_nothing_is_granted_and_nothing_counts(primary: RedisServer, replica: RedisServer) -> None:
    """A claim and a completion are refused with what is missing; a finished record is still replayed."""
    async with opened(primary.url, durability=ONE_REPLICA) as store:
        await recovered(lambda: granted(store, 1))
        hold, done = await granted(store), await granted(store, 2)
        await store.complete(identity(2), done, COMPLETION)
        replica.pause()

        said = [await refusal(store.claim(identity(3), ask())), await refusal(store.complete(identity(), hold, COMPLETION))]
        found = await store.claim(identity(2), ask())
        replica.resume()

    expected = f"redis at 127.0.0.1:{primary.port}: the write is not confirmed: 0 of 1 replicas have it"
    assert [expected, expected] == said
    assert isinstance(found, Found)
    assert COMPLETION.answer == found.record.answer


async def test_what_was_not_confirmed_is_confirmed_when_it_is_sent_again(primary: RedisServer, replica: RedisServer) -> None:
    """The same completion, written before and told again when the replica is back, counts: also on another connection."""
    async with opened(primary.url, durability=ONE_REPLICA) as store, opened(primary.url, durability=ONE_REPLICA) as heir:
        await recovered(lambda: granted(store, 1))
        hold = await granted(store)
        replica.pause()
        await refusal(store.complete(identity(), hold, COMPLETION))
        still = await refusal(heir.complete(identity(), hold, COMPLETION))
        replica.resume()

        await recovered(lambda: heir.complete(identity(), hold, COMPLETION))
        async with opened(replica.url) as other:
            record = await recorded(other)

    assert "the write is not confirmed" in still
    assert (Phase.COMPLETED, COMPLETION.answer) == (record.phase, record.answer)


async def test_a_log_file_confirms_too(primary: RedisServer) -> None:
    """With `aof` a write counts when the server's log file has it; a server without one is refused with the reason."""
    await needs_waitaof(primary.url)
    durable = Durability(aof=True, timeout=2.0)
    with redis_server(appendonly=True) as logged:
        async with opened(logged.url, durability=durable) as store:
            hold = await granted(store)
            settled = await store.complete(identity(), hold, COMPLETION)
    async with opened(primary.url, durability=durable) as store:
        refused = await refusal(store.claim(identity(), ask()))

    assert Settled.WRITTEN == settled
    assert "WAITAOF cannot be used" in refused


async def test_writes_that_leave_together_are_confirmed_together(primary: RedisServer, replica: RedisServer) -> None:
    """Many claims at once cost one question."""
    async with relay(primary.port) as between, opened(f"redis://127.0.0.1:{between.port}/0", durability=ONE_REPLICA) as store:
        await recovered(lambda: granted(store, 99))
        before = len(between.sent)

        await asyncio.gather(*(granted(store, number) for number in range(32)))

    sent = b"".join(between.sent[before:])
    assert (32, 1) == (sent.count(b"EVALSHA"), sent.count(b"WAIT\r\n"))
    assert replica.port


async def test_replays_wait_little_for_replicas_that_are_away(primary: RedisServer, replica: RedisServer) -> None:
    """Once replicas have let a confirmation pass, the next is not waited for so long: what is finished is replayed meanwhile."""
    durable = Durability(replicas=1, timeout=1.0)
    async with relay(primary.port) as between, opened(f"redis://127.0.0.1:{between.port}/0", durability=durable) as store:
        await recovered(lambda: granted(store, 99))
        for number in range(40):
            await granted(store, number)
        replica.pause()
        await refusal(store.claim(identity(100), ask()))
        before = len(between.sent)
        await refusal(store.claim(identity(101), ask()))
        replica.resume()

    asked = b"".join(between.sent[before:]).partition(b"WAIT\r\n$1\r\n1\r\n$")[2].split(b"\r\n")[1]
    assert 20 <= int(asked) < 500


def test_replicas_that_let_one_pass_have_all_the_time_again_after_a_while() -> None:
    """Two seconds after they last had it they get it once more, as they may only be slower; a confirmation gives it back too."""
    patience, quick = Patience(0.5), 0.001
    for _ in range(100):
        patience.confirmed(quick)
    usual = patience.seconds(100.0)
    patience.passed()
    short = [patience.seconds(now) for now in (100.1, 101.9)]
    again = patience.seconds(102.0)
    patience.passed()
    after = [patience.seconds(now) for now in (102.1, 103.9, 104.0)]
    patience.confirmed(quick)

    assert (0.5, [0.02, 0.02], 0.5) == (usual, short, again)
    assert ([0.02, 0.02, 0.5], 0.5) == (after, patience.seconds(104.1))


def test_slow_replicas_have_several_times_what_they_used_to_need() -> None:
    """But never more than the whole time."""
    patience = Patience(0.5)
    for _ in range(100):
        patience.confirmed(0.05)
    patience.seconds(0.0)
    patience.passed()
    slow = patience.seconds(0.1)
    patience.confirmed(0.4)
    patience.seconds(0.2)
    patience.passed()

    assert [pytest.approx(0.2), 0.5] == [slow, patience.seconds(0.3)]


async def test_one_question_is_under_way_at_a_time(primary: RedisServer, replica: RedisServer) -> None:
    """Claims that come while a confirmation is waited for share the next one, and each is refused well within its deadline."""
    async with relay(primary.port) as between, opened(f"redis://127.0.0.1:{between.port}/0", durability=ONE_REPLICA) as store:
        await recovered(lambda: granted(store, 99))
        replica.pause()
        before = len(between.sent)
        claims = []
        for number in range(10):
            claims.append(asyncio.create_task(refusal(store.claim(identity(number), ask()))))
            await between.until(partial(_sent, between, before, number))
        said = await asyncio.gather(*claims)
        replica.resume()

    assert {f"redis at 127.0.0.1:{between.port}: the write is not confirmed: 0 of 1 replicas have it"} == set(said)
    assert 2 == b"".join(between.sent[before:]).count(b"WAIT\r\n")


def _sent(between: Relay, before: int, number: int) -> bool:
    """Whether more than `number` scripts have left since."""
    return b"".join(between.sent[before:]).count(b"EVALSHA") > number


async def test_a_claim_that_is_not_confirmed_is_given_back_at_once(primary: RedisServer, replica: RedisServer) -> None:
    """Nothing is sent under it, so nobody is told that it is in progress, and nothing is left that could become unknown."""
    async with opened(primary.url, durability=ONE_REPLICA) as store:
        await recovered(lambda: granted(store, 1))
        replica.pause()
        with pytest.raises(GivenBackError):
            await store.claim(identity(), ask())
        left = await store.read(identity())
        replica.resume()

    assert left is None


async def test_a_server_that_cannot_confirm_gets_its_claims_back(primary: RedisServer) -> None:
    """An error in the place of a confirmation says as little as none, and the claim is given back too."""
    await needs_waitaof(primary.url)
    async with opened(primary.url, durability=Durability(aof=True)) as store:
        with pytest.raises(GivenBackError, match="WAITAOF cannot be used"):
            await store.claim(identity(), ask())
        left = await store.read(identity())
        said = await refusal(store.check())

    assert left is None
    assert "WAITAOF cannot be used" in said


async def test_a_store_without_its_replicas_does_not_pass_for_ready(primary: RedisServer, replica: RedisServer) -> None:
    """Who asks whether it takes writes is told what a claim would be told."""
    async with opened(primary.url, durability=ONE_REPLICA) as store:
        await recovered(store.check)
        replica.pause()
        said = await refusal(store.check())
        replica.resume()

    assert "0 of 1 replicas have it" in said
