"""What the Redis store promises beyond the contract of all stores: its address, its keys, its one connection, its wakes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from idemproxy.core.record import Phase
from idemproxy.core.transition import Completion, Doubt, Found, Granted, Settled
from idemproxy.store import redis_wake
from idemproxy.store.base import AUDIT_KEPT, StoreError
from idemproxy.store.redis import RedisStore
from tests.servers import RedisServer, redis_server, relay
from tests.store.redis_harness import audit_key, keys
from tests.store.redis_steps import COMPLETION, granted, identity, opened, plain, recorded, refusal
from tests.store.steps import EXPIRED_MARK, LEASE, WITHIN, ask
from tests.topologies import Cluster, Watched, client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for the tests that leave it as it was; it also listens on a socket."""
    with redis_server(unixsocket=str(tmp_path_factory.mktemp("redis") / "socket")) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """Keys of this test alone."""
    return f"test-{uuid.uuid4().hex}:"


# Its address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://:secret@127.0.0.1:6379/0", "store.url begins with http://"),
        ("redis+sentinel://:secret@127.0.0.1", "store.url names no service"),
        ("redis+cluster://:secret@127.0.0.1,127.0.0.2/3", "store.url names a database, and a cluster has none but 0"),
        ("redis://:secret@127.0.0.1,127.0.0.2/0", "store.url names several hosts"),
        ("127.0.0.1:6379", "store.url begins with"),
        ("redis://:secret@127.0.0.1:port/0", "store.url is not a URL"),
        ("redis://:secret@127.0.0.1/first", "store.url names the database 'first'"),
        ("redis://:secret@127.0.0.1/0?retry_on_timeout=true", "store.url has options that are not known: retry_on_timeout"),
        ("redis://:secret@/0", "store.url names no host"),
        ("unix://:secret@host/socket", "store.url names no socket"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_at_once(url: str, reason: str) -> None:
    """Construction fails with what is wrong with the URL, and without its password."""
    with pytest.raises(StoreError) as raised:
        RedisStore(url)

    assert reason == str(raised.value)[: len(reason)]
    assert "secret" not in str(raised.value)


def test_a_prefix_with_braces_is_refused() -> None:
    """A brace in the prefix would decide the slot in place of the record's own tag."""
    with pytest.raises(StoreError, match="holds a brace"):
        RedisStore("redis://127.0.0.1", prefix="{app}:")


async def test_database_and_socket_come_from_the_url(server: RedisServer, prefix: str) -> None:
    """A record written through the socket into database 3 is found by TCP in database 3, and in no other."""
    socket = server.settings["unixsocket"]
    other, same = server.url, server.url.removesuffix("/0") + "/3"
    async with (
        opened(f"unix://{socket}?db=3", prefix) as store,
        opened(same, prefix) as there,
        opened(other, prefix) as elsewhere,
    ):
        hold = await granted(store)

        found = [record and record.fence for record in (await there.read(identity()), await elsewhere.read(identity()))]

    assert [hold.fence, None] == found


# Its keys


async def test_only_what_is_completed_expires(server: RedisServer, prefix: str) -> None:
    """In flight and unknown have no expiry; a completed answer goes after its retention, the record after its expired mark."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        record, answer = keys(prefix, identity())
        hold = await granted(store)
        in_flight = [await client.pttl(record), await client.pttl(answer)]
        await store.mark_unknown(identity(), hold, Doubt(500, answer=b"an error"))
        unknown = [await client.pttl(record), await client.pttl(answer)]
        await store.complete(identity(), hold, COMPLETION)
        completed = await recorded(store)
        seconds, microseconds = await client.time()
        left = [await client.pttl(record), await client.pttl(answer)]

    no_expiry, absent = -1, -2
    assert [no_expiry, absent] == in_flight
    assert [no_expiry, no_expiry] == unknown
    promised = [(time or 0) / 1000 - seconds * 1000 - microseconds / 1000 for time in (completed.forget_at, completed.expires_at)]
    assert promised == pytest.approx(left, abs=1000)


async def test_an_expired_record_that_is_claimed_again_expires_no_more(server: RedisServer, prefix: str) -> None:
    """A reclaimed record is in flight without an expiry, and without anything of the completion before it."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        hold = await granted(store)
        await store.complete(
            identity(), hold, Completion(status=201, retention=0, expired_mark=EXPIRED_MARK, answer=b"gone at once")
        )
        expired = (await recorded(store)).phase

        again = await store.claim(identity(), ask(owner="second", reclaim=hold.fence))
        record, answer = keys(prefix, identity())
        left = [await client.pttl(record), await client.exists(answer)]
        fields = await client.hkeys(record)

    assert Phase.EXPIRED is expired
    assert isinstance(again, Granted)
    assert [-1, 0] == left
    assert [b"claimed_at", b"fence", b"fingerprint", b"lease_until", b"owner", b"phase", b"route", b"v"] == sorted(fields)


async def test_a_trail_expires_some_time_after_its_last_act(server: RedisServer, prefix: str) -> None:
    """Each act sets the time anew at which the server forgets the trail; the record's own expiry does not shorten it."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        trail, left = audit_key(prefix, identity()), []
        for _ in range(2):
            hold = await granted(store)
            await store.mark_unknown(identity(), hold, Doubt())
            await store.resolve(identity(), hold.fence, COMPLETION, "ada", "it arrived")
            left.append(await client.pttl(trail))
            await client.pexpire(trail, 60_000)
            await store.forget(identity(), (await recorded(store)).fence, "ada", "test data")
            left.append(await client.pttl(trail))

    assert [pytest.approx(AUDIT_KEPT / 1000, abs=10_000)] * 4 == left


async def test_a_record_is_three_keys_of_one_slot_under_the_prefix(server: RedisServer, prefix: str) -> None:
    """Nothing is written outside the prefix, and nothing of a record outside its hash tag; each tag has a witness beside."""
    async with (
        opened(server.url.removesuffix("/0") + "/7", prefix) as store,
        plain(server.url.removesuffix("/0") + "/7") as client,
    ):
        hold = await granted(store)
        await store.mark_unknown(identity(), hold, Doubt())
        await store.resolve(identity(), hold.fence, COMPLETION, "ada", "it arrived")
        await store.check()

        found = sorted([key.decode() async for key in client.scan_iter()])

    record, answer = keys(prefix, identity())
    tags = {key.removeprefix(prefix)[:4] for key in found}
    assert record[len(prefix) + 4 :] == f"shared/payments/{identity().key_hash}"
    assert {f"{{{bucket:02x}}}" for bucket in range(256)} == tags
    assert sorted([record, answer, f"{record}:audit", f"{prefix}{{00}}check"]) == [
        key for key in found if not key.endswith("}witness")
    ]


async def test_times_and_fences_keep_every_digit(server: RedisServer, prefix: str) -> None:
    """Fence and times are stored as whole microseconds in plain digits."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        hold = await granted(store)

        stored = await client.hmget(keys(prefix, identity())[0], ["fence", "claimed_at", "lease_until"])

    assert [str(time).encode() for time in (hold.fence, hold.claimed_at, hold.claimed_at + LEASE)] == stored


async def test_a_record_of_another_layout_is_refused(server: RedisServer, prefix: str) -> None:
    """A record that another version wrote in another form is not taken for an absent one."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        await client.hset(keys(prefix, identity())[0], mapping={"v": "2"})

        said = await refusal(store.claim(identity(), ask()))

    assert "RECORDVERSION the record has version 2" in said


# Its one connection


async def test_concurrent_claims_share_a_write(server: RedisServer, prefix: str) -> None:
    """64 claims of one turn of the loop reach the server over one connection in a handful of writes."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", prefix) as store:
        before = len(between.sent)
        holds = await asyncio.gather(*(granted(store, number, f"owner{number}") for number in range(64)))

        writes = len(between.sent) - before

    assert [f"owner{number}" for number in range(64)] == [hold.owner for hold in holds]
    assert 1 == between.connections
    assert writes <= 4


async def test_a_cancelled_caller_leaves_the_next_its_own_reply(server: RedisServer, prefix: str) -> None:
    """A claim whose caller is cancelled after it was sent is carried out, and its reply is given to nobody else."""
    async with opened(server.url, prefix) as store:
        server.pause()
        cancelled = asyncio.create_task(store.claim(identity(1), ask(owner="first")))
        following = asyncio.create_task(store.claim(identity(2), ask(owner="second")))
        await asyncio.sleep(0)  # one turn of the loop: both have submitted
        cancelled.cancel()
        server.resume()
        answer = await following

        first, second = await recorded(store, 1), await recorded(store, 2)

    assert cancelled.cancelled()
    assert "first" == first.owner
    assert isinstance(answer, Granted)
    assert (second.fence, "second") == (answer.hold.fence, answer.hold.owner)


async def test_close_finishes_what_was_begun(server: RedisServer, prefix: str) -> None:
    """A completion that is under way when the store closes is confirmed."""
    async with opened(server.url, prefix) as store, opened(server.url, prefix) as reader:
        hold = await granted(store)
        server.pause()
        completing = asyncio.create_task(store.complete(identity(), hold, COMPLETION))
        await asyncio.sleep(0)  # one turn of the loop: it has submitted
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        server.resume()
        await closing

        assert Settled.WRITTEN is await completing
        assert Phase.COMPLETED is (await recorded(reader)).phase
        assert "the store is closed" in await refusal(store.read(identity()))


async def test_scripts_that_the_server_lost_are_loaded_again(server: RedisServer, prefix: str) -> None:
    """After SCRIPT FLUSH every operation works on, also many at once."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        await client.script_flush()
        holds = await asyncio.gather(*(granted(store, number) for number in range(8)))
        await client.script_flush()

        settled = await asyncio.gather(*(store.complete(identity(number), hold, COMPLETION) for number, hold in enumerate(holds)))

    assert [Settled.WRITTEN] * 8 == settled


@pytest.mark.parametrize("fixture", ["sentinels", "nodes"])
async def test_scripts_that_one_of_many_servers_lost(fixture: str, prefix: str, request: pytest.FixtureRequest) -> None:
    """As above, for the primary behind Sentinels, and for every node of a cluster."""
    topology: Watched | Cluster = request.getfixturevalue(fixture)
    async with opened(topology.url, prefix) as store:
        holds = await asyncio.gather(*(granted(store, number) for number in range(16)))
        for server in topology.servers:
            with client(server.port) as node:
                node.script_flush()

        settled = await asyncio.gather(*(store.complete(identity(number), hold, COMPLETION) for number, hold in enumerate(holds)))

    assert [Settled.WRITTEN] * 16 == settled


# Its wakes


async def test_a_settlement_wakes_those_who_watch_from_another_store(server: RedisServer, prefix: str) -> None:
    """A watched claim that found the record in flight is woken by the settlement through another connection, and sees it."""
    async with opened(server.url, prefix) as holder, opened(server.url, prefix) as other:
        hold = await granted(holder)
        async with asyncio.timeout(WITHIN):
            with other.watch(identity()) as wake:
                found = await other.claim(identity(), ask(owner="second"), watched=True)
                await holder.complete(identity(), hold, COMPLETION)
                await wake.wait(2 * WITHIN)
        record = await recorded(other)

    assert isinstance(found, Found)
    assert [Phase.IN_FLIGHT, Phase.COMPLETED] == [found.record.phase, record.phase]


async def test_a_record_that_nobody_watches_is_settled_without_a_message(server: RedisServer, prefix: str) -> None:
    """Only a settlement that someone waits for is published."""
    async with opened(server.url, prefix) as store, plain(server.url) as client, client.pubsub() as ear:
        await ear.subscribe(f"{prefix}settled")
        await store.complete(identity(1), await granted(store, 1), COMPLETION)
        hold = await granted(store, 2)
        await store.claim(identity(2), ask(owner="second"), watched=True)
        await store.release(identity(2), hold)

        heard = [await ear.get_message(timeout=WITHIN) for _ in range(2)]

    assert ["subscribe", "message"] == [message and message["type"] for message in heard]
    assert keys(prefix, identity(2))[0].encode() == (heard[1] or {})["data"]


async def test_a_lost_subscription_is_made_again_and_lets_all_look(server: RedisServer, prefix: str) -> None:
    """When the subscription is lost, its return wakes those who wait, and messages come as before."""
    async with opened(server.url, prefix) as holder, opened(server.url, prefix) as other, plain(server.url) as client:
        hold = await granted(holder)
        async with asyncio.timeout(WITHIN):
            with other.watch(identity()) as wake:
                await other.claim(identity(), ask(owner="second"), watched=True)
                await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
                await wake.wait(2 * WITHIN)
                await holder.complete(identity(), hold, COMPLETION)
                await wake.wait(2 * WITHIN)

        assert Phase.COMPLETED is (await recorded(other)).phase


async def test_a_subscription_that_hangs_is_replaced(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent subscription is kept while its PINGs are answered, and made anew when they are not."""
    monkeypatch.setattr(redis_wake, "_SILENCE", 0.3)
    with redis_server() as server:
        async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", prefix) as store:
            async with asyncio.timeout(WITHIN):
                with store.watch(identity()) as wake:
                    await between.until(lambda: sum(data.count(b"PING") for data in between.sent) == 2)
                    kept = between.connections
                    server.pause()
                    await between.until(lambda: between.connections > kept)
                    server.resume()
                    await wake.wait(2 * WITHIN)

    assert 2 == kept
