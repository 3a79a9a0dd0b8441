"""What the Redis store promises when its server is away, stuck, full, read-only, or refuses it: nothing lost, nothing made up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.core.record import Phase
from idemproxy.core.transition import Acted, Doubt, Settled
from idemproxy.store import redis_link
from idemproxy.store.redis import RedisStore
from tests.servers import RedisServer, free_port, redis_server, relay
from tests.store.redis_steps import COMPLETION, granted, identity, opened, plain, recorded, recovered, refusal
from tests.store.steps import LEASE, ask

RIGHTS = (
    "+evalsha +script|load +publish +subscribe +scan +lrange +hmget +hset +hdel +get +set +del +rpush +persist +pexpireat "
    "+time +ping"
)
"""The least that a user needs, as docs/how-to/run-on-redis.md has it."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A durable server for one test, to be paused, killed, filled, or made a replica."""
    with redis_server(appendonly=True) as running:
        yield running


# Away


async def test_a_server_that_is_down_at_the_start_heals_by_itself(server: RedisServer) -> None:
    """The store starts without its server, refuses while it is away, and works when it has come."""
    server.stop()
    async with opened(server.url) as store:
        said = [await refusal(store.check()), await refusal(store.claim(identity(), ask()))]
        server.start()
        await recovered(store.check)

        hold = await granted(store)

    address = f"redis at 127.0.0.1:{server.port}: "
    assert [address, address] == [text[: len(address)] for text in said]
    assert all("see that the server runs" in text for text in said)
    assert "owner" == hold.owner


async def test_a_killed_server_comes_back_with_all_that_was_acknowledged(server: RedisServer) -> None:
    """After kill -9 and a restart the same store goes on, and every acknowledged claim and completion is there."""
    async with opened(server.url) as store:
        holds = await asyncio.gather(*(granted(store, number) for number in range(16)))
        await asyncio.gather(*(store.complete(identity(number), holds[number], COMPLETION) for number in range(8)))
        server.kill()
        await refusal(store.read(identity()))
        server.start()
        await recovered(store.check)

        records = [await recorded(store, number) for number in range(16)]

    assert [Phase.COMPLETED] * 8 + [Phase.IN_FLIGHT] * 8 == [record.phase for record in records]
    assert [hold.fence for hold in holds] == [record.fence for record in records]
    assert [COMPLETION.answer] * 8 + [None] * 8 == [record.answer for record in records]


async def test_a_closed_connection_is_replaced_unnoticed(server: RedisServer) -> None:
    """After CLIENT KILL the next operation succeeds."""
    async with opened(server.url) as store, plain(server.url) as client:
        hold = await granted(store)
        await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]

        assert Settled.WRITTEN is await store.complete(identity(), hold, COMPLETION)


async def test_many_callers_of_a_lost_server_make_one_attempt_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 operations against a server that is away are all refused after one attempt; those in the pause after it, without one."""
    monkeypatch.setattr(redis_link, "_FIRST_PAUSE", 600.0)  # so long that a slow machine is still within it
    monkeypatch.setattr(redis_link, "_LAST_PAUSE", 600.0)
    async with relay(free_port()) as between, opened(f"redis://127.0.0.1:{between.port}") as store:
        said = await asyncio.gather(*(refusal(store.claim(identity(number), ask())) for number in range(64)))

    assert 1 == len(set(said))
    assert 1 == between.connections


async def test_many_callers_of_a_server_that_comes_make_one_connection(server: RedisServer) -> None:
    """64 operations that meet no connection all wait for the same one, and succeed over it."""
    async with relay(server.port) as between:
        store = RedisStore(f"redis://127.0.0.1:{between.port}")
        holds = await asyncio.gather(*(granted(store, number) for number in range(64)))
        await store.close()

    assert 64 == len(holds)
    assert 1 == between.connections


# Stuck


async def test_a_stuck_server_is_given_up_at_the_deadline_and_taken_back(server: RedisServer) -> None:
    """A server that stops answering fails all who wait within their deadline; when it runs again, so does the store."""
    async with opened(server.url, deadline=0.5) as store:
        hold = await granted(store)
        server.pause()
        said = await asyncio.gather(*(refusal(store.claim(identity(number), ask())) for number in range(1, 9)))
        said.append(await refusal(store.check()))
        server.resume()
        await recovered(store.check)

        settled = await store.complete(identity(), hold, COMPLETION)

    assert ["no reply came within the deadline"] * 8 == [text.rpartition("before the reply: ")[2] for text in said[:8]]
    assert "deadline" in said[8]
    assert Settled.WRITTEN is settled


async def test_a_lost_claim_reply_is_asked_for_again(server: RedisServer) -> None:
    """When the reply to a claim is lost with the connection, the same call returns the hold that the server has granted."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}") as store:
        between.cut_next_reply()
        hold = await granted(store)

        record = await recorded(store)

    assert 2 == between.connections
    assert (hold.fence, hold.owner, hold.claimed_at) == (record.fence, record.owner, record.claimed_at)


async def test_a_lost_settlement_reply_is_asked_for_again(server: RedisServer) -> None:
    """When the reply to a completion, release or mark is lost, the same call says what became of it."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}") as store:
        holds = [await granted(store, number) for number in range(3)]
        between.cut_next_reply()
        completed = await store.complete(identity(0), holds[0], COMPLETION)
        between.cut_next_reply()
        released = await store.release(identity(1), holds[1])
        between.cut_next_reply()
        marked = await store.mark_unknown(identity(2), holds[2], Doubt())

        records = [await store.read(identity(number)) for number in range(3)]

    assert 4 == between.connections
    assert [Settled.WRITTEN] * 3 == [completed, released, marked]
    assert [Phase.COMPLETED, None, Phase.UNKNOWN] == [record and record.phase for record in records]


async def test_a_persons_act_is_sent_once(server: RedisServer) -> None:
    """When the reply to an act is lost, the person is told so, and not what a second copy of it would have met."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}") as store:
        hold = await granted(store)
        await store.mark_unknown(identity(), hold, Doubt())
        between.cut_next_reply()
        said = await refusal(store.forget(identity(), hold.fence, "ada", "test data"))

        trail = await store.audit(identity())

    assert "the connection was lost before the reply" in said
    assert ["ada"] == [act.who for act in trail]


async def test_a_reply_that_is_lost_twice_is_not_made_up(server: RedisServer) -> None:
    """An operation is asked again once; after that the caller is told that it was not confirmed."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}") as store:
        before = len(between.sent)
        between.cut_every_reply_to(b"EVALSHA")

        said = await refusal(store.claim(identity(), ask()))

    assert "the connection was lost before the reply" in said
    assert 2 == sum(data.count(b"EVALSHA") for data in between.sent[before:])


# Refused


async def test_a_wrong_password_says_so() -> None:
    """A wrong or missing password is refused with what to do; the right one works."""
    with redis_server(requirepass="open sesame") as server:
        right = server.url
        for url, code in (
            (right.replace("sesame", "barley"), "WRONGPASS"),
            (right.replace(":open%20sesame@", ""), "NOAUTH"),
        ):
            async with opened(url) as store:
                said = [await refusal(store.check()), await refusal(store.claim(identity(), ask()))]
            assert [True, True] == [f": {code} " in text and "store.url" in text for text in said]
            assert "barley" not in said[0]
        async with opened(right) as store:
            assert "owner" == (await granted(store)).owner


async def test_a_full_server_refuses_claims_but_keeps_what_is_answered(server: RedisServer) -> None:
    """Where memory is full nothing new is granted, yet what is in flight keeps its lease and is completed, marked or resolved."""
    async with opened(server.url) as store, plain(server.url) as client:
        holds = [await granted(store, number) for number in range(3)]
        await store.mark_unknown(identity(2), holds[2], Doubt())
        await client.config_set("maxmemory", "1")
        said = [await refusal(store.claim(identity(9), ask())), await refusal(store.check())]

        renewed = await store.renew([(identity(number), hold) for number, hold in enumerate(holds[:2])], LEASE)
        completed = await store.complete(identity(0), holds[0], COMPLETION)
        marked = await store.mark_unknown(identity(1), holds[1], Doubt(502, answer=b"an error"))
        acted = [
            await store.resolve(identity(2), holds[2].fence, COMPLETION, "ada", "it arrived"),
            await store.forget(identity(1), holds[1].fence, "ada", "test data"),
        ]
        records = [await store.read(identity(number)) for number in (9, 0, 1, 2)]
        await client.config_set("maxmemory", "0")

        await granted(store, 9)

    assert [True, True] == ["OOM command not allowed" in text and "raise maxmemory" in text for text in said]
    assert [True, True] == renewed
    assert [Settled.WRITTEN] * 2 == [completed, marked]
    assert [Acted.DONE] * 2 == acted
    assert [None, COMPLETION.answer, None, COMPLETION.answer] == [record and record.answer for record in records]


async def test_a_replica_says_so(server: RedisServer) -> None:
    """A server that became a read-only replica refuses every write with what to do, and nothing is granted."""
    async with opened(server.url) as store, plain(server.url) as client:
        hold, doubtful = await granted(store), await granted(store, 1)
        await store.mark_unknown(identity(1), doubtful, Doubt())
        await client.replicaof("127.0.0.1", str(free_port()))

        said = [
            await refusal(operation)
            for operation in (
                store.claim(identity(9), ask()),
                store.renew([(identity(), hold)], LEASE),
                store.complete(identity(), hold, COMPLETION),
                store.release(identity(), hold),
                store.mark_unknown(identity(), hold, Doubt()),
                store.resolve(identity(1), doubtful.fence, None, "ada", "nothing arrived"),
                store.forget(identity(1), doubtful.fence, "ada", "test data"),
                store.check(),
            )
        ]

    assert [True] * 8 == ["READONLY " in text and "name the primary" in text for text in said]


async def test_a_user_without_the_rights_says_which_are_needed(server: RedisServer) -> None:
    """A user that may not run scripts is told what to allow."""
    async with plain(server.url) as client:
        await client.execute_command("ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", "+@all", "-evalsha")  # type: ignore[no-untyped-call]
    async with opened(server.url.replace("redis://", "redis://narrow:pass@")) as store:
        said = await refusal(store.claim(identity(), ask()))

    assert ": NOPERM " in said
    assert "evalsha" in said


async def test_users_as_the_documents_have_them_keep_what_was_completed(tmp_path: Path) -> None:
    """A server reads its log as the default user; switched off without rights, some versions would drop every completion."""
    users = tmp_path / "users.acl"
    users.write_text(f"user default off ~* &* +@all\nuser proxy on >word ~test:* &test:* {RIGHTS}\n")
    with redis_server(appendonly=True, aclfile=str(users)) as server:
        async with opened(f"redis://proxy:word@127.0.0.1:{server.port}/0") as store:
            await store.complete(identity(), await granted(store), COMPLETION)
            server.restart()
            await recovered(store.check)
            record = await recorded(store)

    assert (Phase.COMPLETED, COMPLETION.answer) == (record.phase, record.answer)


async def test_a_server_that_forgot_the_scripts_and_does_not_take_them_again_is_away(server: RedisServer) -> None:
    """As with all that a server refuses, whoever asked is told that the store is unavailable, and why."""
    async with plain(server.url) as admin:
        await admin.execute_command("ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", "+@all")  # type: ignore[no-untyped-call]
        async with opened(server.url.replace("redis://", "redis://narrow:pass@")) as store:
            hold = await granted(store)
            await admin.execute_command("ACL", "SETUSER", "narrow", "-script|load")  # type: ignore[no-untyped-call]
            await admin.script_flush()
            asked = (
                store.claim(identity(1), ask()),
                store.renew([(identity(), hold)], LEASE),
                store.complete(identity(), hold, COMPLETION),
                store.release(identity(), hold),
            )
            said = [await refusal(each) for each in asked]

    assert [True] * len(asked) == ["script" in each for each in said]
