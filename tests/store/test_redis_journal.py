"""What the Redis store promises of its journals beyond the contract: one key for each, round trips, confirmation, full memory."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Final

import pytest
from redis.asyncio import Redis

from idemproxy.core.journal import ABSENT, Conflict, Journal, Memory, Note, WorkflowIdentity
from idemproxy.core.record import MICROSECONDS
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import Durability
from tests.servers import RedisServer, redis_server, relay
from tests.store.redis_steps import NARROW, granted, opened, plain, recovered, refusal
from tests.store.steps import identity

WORKFLOW: Final = WorkflowIdentity("shared", "ab12")
KEPT: Final = 3600 * MICROSECONDS
ONE_REPLICA: Final = Durability(replicas=1, timeout=0.3)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for the tests, which leave it as it was."""
    with redis_server(repl_diskless_sync_delay="0") as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """Keys of this test alone."""
    return f"test-{uuid.uuid4().hex}:"


def note(name: str = "step", kept: int = KEPT) -> Note:
    """A step whose record has a key of this name."""
    return Note(identity(name), "seats", kept, name)


async def read(store: RedisStore) -> Journal:
    """The journal that must be there."""
    found = await store.journals.journal(WORKFLOW)
    assert found is not None
    return found[0]


async def outlive(client: Redis, key: str) -> None:
    """Let a journal be over, and the server keep it."""
    await client.hset(key, "forget_at", "1")
    await client.persist(key)


# Its key


async def test_a_journal_is_one_key_that_expires_with_it(server: RedisServer, prefix: str) -> None:
    """Steps and memory lie in one hash under the prefix, which the server removes when the journal is over."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        before = {key async for key in client.scan_iter(match=f"{prefix}*")}
        left = []
        await store.journals.note(WORKFLOW, note("first"))
        left.append(await client.pttl(f"{prefix}{{w/shared/ab12}}"))
        await store.journals.note(WORKFLOW, note("second", 2 * KEPT))
        left.append(await client.pttl(f"{prefix}{{w/shared/ab12}}"))
        await store.journals.note(WORKFLOW, note("first"))
        await store.journals.save(WORKFLOW, b"new", ABSENT, 3 * KEPT)
        left.append(await client.pttl(f"{prefix}{{w/shared/ab12}}"))
        added = {key async for key in client.scan_iter(match=f"{prefix}*")} - before

    assert {f"{prefix}{{w/shared/ab12}}".encode()} == added
    assert [pytest.approx(times * KEPT / 1000, abs=10_000) for times in (1, 2, 3)] == left


async def test_a_journal_is_over_at_its_time_also_where_the_server_still_has_it(server: RedisServer, prefix: str) -> None:
    """The server forgets by the millisecond, or later: nobody sees what it still has, and none of it comes back."""
    key = f"{prefix}{{w/shared/ab12}}"
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        await store.journals.note(WORKFLOW, note("old"))
        old = await store.journals.save(WORKFLOW, b"old", ABSENT, KEPT)
        await outlive(client, key)
        seen: list[object] = [await store.journals.journal(WORKFLOW)]
        stale = await store.journals.save(WORKFLOW, b"new", old.version, KEPT)
        await store.journals.note(WORKFLOW, note("new"))
        noted = await read(store)
        await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
        await outlive(client, key)
        seen.append(await store.journals.journal(WORKFLOW))
        new = await store.journals.save(WORKFLOW, b"newer", ABSENT, KEPT)
        saved = await read(store)

    assert [None, None] == seen
    assert Conflict(ABSENT) == stale
    assert ([note("new")], None) == ([entry.note for entry in noted.entries], noted.memory)
    assert ((), Memory(b"newer", new.version, ABSENT)) == (saved.entries, saved.memory)


async def test_a_journal_of_another_layout_is_refused(server: RedisServer, prefix: str) -> None:
    """One that another version wrote in another form is not taken for an absent one, and not written to."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        await client.hset(f"{prefix}{{w/shared/ab12}}", mapping={"v": "2"})

        said = [
            await refusal(call)
            for call in (
                store.journals.note(WORKFLOW, note()),
                store.journals.save(WORKFLOW, b"new", None, KEPT),
                store.journals.journal(WORKFLOW),
            )
        ]
        fields = await client.hkeys(f"{prefix}{{w/shared/ab12}}")

    assert ["has version 2" in text for text in said] == [True] * 3
    assert [b"v"] == fields


async def test_journals_take_no_rights_beyond_those_of_records(server: RedisServer, prefix: str) -> None:
    """A user who may do what records need may keep journals: nobody has to be given more when journals begin to be kept."""
    async with plain(server.url) as client:
        await client.execute_command("ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", *NARROW)  # type: ignore[no-untyped-call]
    async with opened(server.url.replace("redis://", "redis://narrow:pass@"), prefix) as store:
        await store.journals.note(WORKFLOW, note())
        first = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
        again = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
        found = await read(store)

    assert first == again
    assert (note(), Memory(b"new", first.version, ABSENT)) == (found.entries[0].note, found.memory)


# Its way to the server


async def test_notes_and_claims_that_are_asked_at_once_leave_in_one_write(server: RedisServer, prefix: str) -> None:
    """A step takes a round trip more before it is forwarded, and shares it with what others ask."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", prefix) as store:
        before = len(between.sent)

        await asyncio.gather(store.journals.note(WORKFLOW, note()), granted(store))

        sent = between.sent[before:]
        assert (1, 2) == (len(sent), b"".join(sent).count(b"EVALSHA"))


async def test_a_note_and_a_save_whose_replies_are_lost_are_asked_again_once(server: RedisServer, prefix: str) -> None:
    """The connection cut before the reply, the second copy is answered as the first would have been: nothing is there twice."""
    async with relay(server.port) as between, opened(f"redis://127.0.0.1:{between.port}", prefix) as store:
        between.cut_next_reply()
        await store.journals.note(WORKFLOW, note())
        between.cut_next_reply()
        saved = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)

        found = await read(store)

    assert [note()] == [entry.note for entry in found.entries]
    assert Memory(b"new", saved.version, ABSENT) == found.memory


async def test_a_note_and_a_save_count_when_the_replica_has_them(server: RedisServer, prefix: str) -> None:
    """As claims do: without the replica they are refused, and asked again they count, also through another connection."""
    with redis_server(replicaof=f"127.0.0.1 {server.port}") as replica:
        async with (
            opened(server.url, prefix, durability=ONE_REPLICA) as store,
            opened(server.url, prefix, durability=ONE_REPLICA) as heir,
        ):
            await recovered(lambda: store.journals.note(WORKFLOW, note("first")))
            replica.pause()
            said = [
                await refusal(store.journals.note(WORKFLOW, note("second"))),
                await refusal(store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)),
                await refusal(heir.journals.save(WORKFLOW, b"new", ABSENT, KEPT)),
                await refusal(heir.journals.note(WORKFLOW, note("second"))),
            ]
            readable = await read(heir)
            replica.resume()

            await recovered(lambda: heir.journals.note(WORKFLOW, note("second")))
            saved = await heir.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
            async with opened(replica.url, prefix) as there:
                found = await read(there)

    assert [True] * 4 == ["the write is not confirmed: 0 of 1 replicas have it" in text for text in said]
    assert 2 == len(readable.entries)
    assert [note("first"), note("second")] == [entry.note for entry in found.entries]
    assert Memory(b"new", saved.version, ABSENT) == found.memory


async def test_a_full_server_takes_no_step_and_tells_what_it_has(server: RedisServer, prefix: str) -> None:
    """Where memory is full notes and saves are refused, as claims are, and nothing is half kept; journals are read."""
    async with opened(server.url, prefix) as store, plain(server.url) as client:
        await store.journals.note(WORKFLOW, note())
        saved = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
        before = await read(store)
        await client.config_set("maxmemory", "1")
        said = [
            await refusal(store.journals.note(WORKFLOW, note("another"))),
            await refusal(store.journals.save(WORKFLOW, b"newer", saved.version, KEPT)),
        ]

        full = await read(store)
        await client.config_set("maxmemory", "0")

    assert [True, True] == ["OOM command not allowed" in text for text in said]
    assert before == full
