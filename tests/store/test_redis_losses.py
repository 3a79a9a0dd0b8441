"""A server that has lost its records is not taken for an empty one: nothing is granted for what has no record any more."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from idemproxy.core.record import Identity, Phase
from idemproxy.core.transition import Found, Granted, Settled
from idemproxy.store.base import LostRecordsError
from idemproxy.store.base_finding import Finding, Level
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_form import BUCKETS, Keys
from tests.servers import RedisServer, redis_server
from tests.store.redis_steps import COMPLETION, granted, identity, opened, plain, recorded, recovered, refusal
from tests.store.steps import ask
from tests.topologies import Cluster, client, migrating

LOST = "the store has lost records since this proxy started"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all, which each test empties."""
    with redis_server() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """Keys of this test alone."""
    return f"test-{uuid.uuid4().hex}:"


async def completed(store: RedisStore, number: int = 0) -> None:
    """Have an operation carried out, from claim to completion."""
    await store.complete(identity(number), await granted(store, number), COMPLETION)


def of_bucket(prefix: str, bucket: int) -> Identity:
    """A record that is in a bucket."""
    return next(identity(number) for number in range(100_000) if Keys(prefix).bucket(identity(number)) == bucket)


async def losses(store: RedisStore) -> list[Finding]:
    """What an inspection finds that is lost."""
    return [finding for finding in await store.inspect() if finding.what == "records"]


async def test_after_a_flush_nothing_is_granted_and_nothing_written(server: RedisServer, prefix: str) -> None:
    """Neither what was completed, nor what is new: nobody knows which is which; and no claim leaves a trace."""
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        await completed(store)
        await operator.flushall()
        said = [await refusal(store.claim(identity(number), ask())) for number in (0, 1)]
        left = await operator.dbsize()

    assert [True, True] == [LOST in each and "store.accept_risk: [loss]" in each for each in said]
    assert 0 == left


async def test_a_loss_is_told_by_check_and_inspection(server: RedisServer, prefix: str) -> None:
    """The store says that it is not well, with what to do, without a claim that met the loss; before, nothing is said."""
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        await store.check()
        before = await losses(store)
        await operator.flushall()
        with pytest.raises(LostRecordsError, match=LOST):
            await store.check()
        after = await losses(store)

    assert [] == before
    assert [(Level.ERROR, "loss", True)] == [(each.level, each.risk, each.text.startswith(LOST)) for each in after]


async def test_what_its_holder_writes_anew_is_replayed(server: RedisServer, prefix: str) -> None:
    """A record that is there proves itself: a completion after the loss counts, and its retry is answered."""
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        hold = await granted(store)
        await operator.flushall()
        settled = await store.complete(identity(), hold, COMPLETION)
        again = await store.claim(identity(), ask())

    assert Settled.REWRITTEN is settled
    assert isinstance(again, Found)
    assert (Phase.COMPLETED, COMPLETION.answer) == (again.record.phase, again.record.answer)


async def test_only_who_starts_after_the_loss_is_granted_claims(server: RedisServer, prefix: str) -> None:
    """A process that has seen the records before goes on to refuse, also beside one that has not, and has begun anew."""
    async with opened(server.url, prefix) as first, opened(server.url, prefix) as second, plain(server.url) as operator:
        await completed(first)
        await operator.flushall()
        async with opened(server.url, prefix) as later:
            await later.check()
            await completed(later)
            said = [await refusal(store.claim(identity(1), ask())) for store in (first, second)]
            replayed = [(await store.claim(identity(), ask())).__class__ for store in (first, second)]

    assert [True, True] == [LOST in each for each in said]
    assert [Found, Found] == replayed


async def test_an_accepted_loss_is_logged_once_and_begun_anew(
    server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `store.accept_risk: [loss]` claims are granted after a flush, and an error says what that means."""
    caplog.set_level(logging.ERROR, "idemproxy")
    store = RedisStore(server.url, prefix=prefix, accepts_loss=True)
    await store.start()
    async with plain(server.url) as operator:
        await completed(store)
        await operator.flushall()
        again = [await store.claim(identity(number), ask()) for number in range(8)]
        await store.check()
        found = await losses(store)
    await store.close()

    assert [Granted] * 8 == [each.__class__ for each in again]
    assert [] == found
    assert [True] == [f"{LOST}, which store.accept_risk accepts" in record.message for record in caplog.records]


async def test_a_witness_that_is_lost_speaks_for_its_bucket(server: RedisServer, prefix: str) -> None:
    """Where one bucket is lost, its keys are refused and all others granted; from the first refusal on, `check` tells it."""
    bucket = Keys(prefix).bucket(identity())
    other = next(number for number in range(1, 9) if Keys(prefix).bucket(identity(number)) != bucket)
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        await operator.delete(Keys(prefix).witness(bucket))
        said = await refusal(store.claim(identity(), ask()))
        await granted(store, other)
        told = await refusal(store.check())

    assert [True, True] == [LOST in said, LOST in told]


async def test_a_server_that_was_away_at_the_start_is_watched_from_its_return(prefix: str) -> None:
    """Who could see no witness when it started sees them at the first check; a loss after that is refused everywhere."""
    with redis_server() as server:
        server.stop()
        async with opened(server.url, prefix) as store:
            server.start()
            await recovered(store.check)
            async with plain(server.url) as operator:
                await operator.flushall()
            said = [await refusal(store.claim(identity(number), ask())) for number in range(4)]

    assert [True] * 4 == [LOST in each for each in said]


async def test_a_server_that_was_away_is_watched_by_looks_alone(prefix: str) -> None:
    """Without a probe of readiness, too: an inspection sees the witnesses that could not be seen at the start."""
    with redis_server() as server:
        server.stop()
        async with opened(server.url, prefix) as store:
            server.start()
            await recovered(store.inspect)
            async with plain(server.url) as operator:
                await operator.flushall()
            said = [await refusal(store.claim(identity(number), ask())) for number in range(4)]

    assert [True] * 4 == [LOST in each for each in said]


async def test_a_store_without_records_is_told_whoever_made_its_witnesses(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the first write was a claim, or was not confirmed; and once."""
    caplog.set_level(logging.INFO, "idemproxy")
    with redis_server() as server:
        server.stop()
        async with opened(server.url, prefix) as store:
            server.start()
            await recovered(lambda: store.claim(identity(), ask()))
            for _ in range(2):
                await store.check()
        async with opened(server.url, prefix + "2", durability=Durability(replicas=1, timeout=0.02)) as store:
            await refusal(store.check())
            with redis_server(replicaof=f"127.0.0.1 {server.port}", repl_diskless_sync_delay="0"):
                await recovered(store.check)

    assert [True] * 2 == ["holds no records of an earlier start" in record.message for record in caplog.records]


async def test_who_only_looks_makes_no_witness(prefix: str) -> None:
    """After a loss the next proxy still finds a store without any, and says so: `doctor` does not speak in its place."""
    with redis_server() as server:
        store = RedisStore(server.url, prefix=prefix, only_looks=True)
        await store.start()
        await store.check()
        await store.inspect()
        await store.close()
        with client(server.port) as operator:
            left = operator.keys()

    assert [Keys(prefix).check(0)] == left


async def test_an_absent_record_that_may_be_lost_is_not_told_as_none(server: RedisServer, prefix: str) -> None:
    """Pages take no record for "nothing was carried out"; where the witness is there, no record is what it is."""
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        never = await store.read(identity(1))
        await completed(store)
        await operator.flushall()
        said = await refusal(store.read(identity()))

    assert never is None
    assert LOST in said


async def test_a_slot_that_moves_does_not_make_the_store_unready(nodes: Cluster, prefix: str) -> None:
    """Each command of `check` has one key, so that a slot on its way, here without the key of the check, refuses none."""
    async with opened(nodes.url, prefix) as store:
        with migrating(nodes, Keys(prefix).witness(0)):
            await store.check()
            moved = await refusal(store.claim(of_bucket(prefix, 0), ask()))

    assert "TRYAGAIN" in moved


async def test_a_first_claim_sees_its_own_witness(server: RedisServer, prefix: str) -> None:
    """A store that was never started, nor checked, watches what it has used."""
    store = RedisStore(server.url, prefix=prefix)
    hold = await granted(store)
    async with plain(server.url) as operator:
        await store.release(identity(), hold)
        again = await store.claim(identity(), ask())
        await operator.flushall()
        said = await refusal(store.claim(identity(), ask()))
    await store.close()

    assert isinstance(again, Granted)
    assert LOST in said


async def test_a_full_server_that_nobody_has_opened_replays(server: RedisServer, prefix: str) -> None:
    """Where no witness can be written, what is there is answered all the same."""
    async with opened(server.url, prefix) as store, plain(server.url) as operator:
        await completed(store)
        await operator.delete(*(Keys(prefix).witness(bucket) for bucket in range(BUCKETS)))
        await operator.config_set("maxmemory", "1")
        try:
            async with opened(server.url, prefix) as late:
                found = await late.claim(identity(), ask())
                said = await refusal(late.claim(identity(1), ask()))
        finally:
            await operator.config_set("maxmemory", "0")

    assert isinstance(found, Found)
    assert "OOM" in said


async def test_a_list_holds_neither_witnesses_nor_answers(server: RedisServer, prefix: str) -> None:
    """Beside the records there are other keys of the store, and a list shows none of them."""
    async with opened(server.url, prefix) as store:
        await completed(store)
        await store.check()
        page = await store.list(None, 10_000, "")
        record = await recorded(store)

    assert [(identity(), record.fence)] == [(of, each.fence) for of, each in page.records]


async def test_a_node_of_a_cluster_that_is_flushed_refuses_its_own_keys(nodes: Cluster, prefix: str) -> None:
    """The keys of the other nodes are granted and replayed; the store as a whole says that it is not well."""
    async with opened(nodes.url, prefix) as store:
        for number in range(24):
            await completed(store, number)
        with client(nodes.primaries()[0].port) as node:
            there = {key.decode() for key in node.scan_iter(f"{prefix}*")}
            node.flushall()
        lost = [number for number in range(24) if Keys(prefix).of(identity(number))[0].decode() in there]
        outcomes: dict[int, bool | None] = {}
        for number in range(24):
            try:
                outcomes[number] = isinstance(await store.claim(identity(number), ask()), Found)
            except LostRecordsError:
                outcomes[number] = None
        told = await refusal(store.check())

    assert 0 < len(lost) < 24
    assert {number: None if number in lost else True for number in range(24)} == outcomes
    assert LOST in told
