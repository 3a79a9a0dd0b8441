"""What the SQLite store promises beyond the contract: durable group commits, sweeps, and many processes on one file."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from idemproxy.core.record import MICROSECONDS, Phase
from idemproxy.core.transition import Acted, Doubt, Found, Granted
from idemproxy.store.base import AUDIT_KEPT, StoreUnavailableError
from idemproxy.store.base_host import HostClock
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_file import SCHEMA_VERSION, open_file
from idemproxy.store.sqlite_writer import SWEEP_ROWS
from tests.store.harness import Clock, SqliteHarness
from tests.store.sqlite_steps import commits, locked, log, query, worker
from tests.store.steps import ANSWER, LEASE, ask, completion, found, granted, identity

DAY = 86_400
ME = identity()


# Durability and groups


def test_commits_are_durable(tmp_path: Path) -> None:
    """The file has a write-ahead log, and a commit returns when it has reached the disk (`synchronous=FULL`)."""
    with closing(open_file(tmp_path / "records.db", create=True)) as connection:
        settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous", "user_version")]

    assert [("wal",), (2,), (SCHEMA_VERSION,)] == settings


async def test_claims_that_wait_together_share_one_commit(files: SqliteHarness) -> None:
    """64 claims and then 64 completions that queue while the file is busy cost one commit each time."""
    store = await files.open()
    ids = [identity(f"key-{number}") for number in range(64)]
    before = commits(files.path)
    with locked(files.path):
        claims = [asyncio.create_task(granted(store, each)) for each in ids]
        await asyncio.sleep(0)
    holds = await asyncio.gather(*claims)
    after_claims = commits(files.path)
    with locked(files.path):
        completions = [asyncio.create_task(store.complete(*each, completion())) for each in zip(ids, holds, strict=True)]
        await asyncio.sleep(0)
    await asyncio.gather(*completions)

    assert [1, 1] == [after_claims - before, commits(files.path) - after_claims]


async def test_what_comes_in_the_next_turn_shares_the_commit(files: SqliteHarness) -> None:
    """A claim that is asked one turn of the loop after another, as when the sockets are looked at again, costs no commit more."""
    store = await files.open()
    before = commits(files.path)
    for number in range(20):  # one alone might find the thread still on its way to the first
        first = asyncio.create_task(granted(store, identity(f"first-{number}")))
        await asyncio.sleep(0)
        second = asyncio.create_task(granted(store, identity(f"second-{number}")))
        await asyncio.gather(first, second)

    assert 20 == commits(files.path) - before


async def test_what_changes_nothing_is_not_committed(files: SqliteHarness) -> None:
    """Reads, replays, repeated claims and stale writes leave the log as it was: no flush to the disk."""
    store = await files.open()
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())
    before = commits(files.path)

    await store.read(ME)
    await found(store, ME)
    await store.release(ME, hold)
    await store.complete(ME, hold, completion())
    await store.read(identity("another"))

    assert before == commits(files.path)


async def test_steps_of_one_batch_see_each_other(files: SqliteHarness) -> None:
    """Of two claims and a release of one key in the same transaction, each finds what the one before it left."""
    store = await files.open()
    hold = await granted(store, ME)
    with locked(files.path):
        steps = [
            asyncio.create_task(step)
            for step in (store.claim(ME, ask()), store.release(ME, hold), store.claim(ME, ask()), store.claim(ME, ask()))
        ]
        await asyncio.sleep(0)
    results = await asyncio.gather(*steps)

    assert [Found, Granted, Found] == [type(results[place]) for place in (0, 2, 3)]


async def test_an_act_that_cannot_be_noted_is_not_done(files: SqliteHarness) -> None:
    """The act and its entry in the trail are one: where the entry cannot be written, the record stays as it was."""
    store = await files.open()
    ids = [identity(name) for name in ("mine", "a neighbour's")]
    holds = [await granted(store, each) for each in ids]
    for each, hold in zip(ids, holds, strict=True):
        await store.mark_unknown(each, hold, Doubt())
    with locked(files.path):
        acts = [
            asyncio.create_task(store.forget(each, hold.fence, who, "test data"))
            for each, hold, who in zip(ids, holds, ("\ud800 is no character", "ada"), strict=True)
        ]
        await asyncio.sleep(0)
    results = await asyncio.gather(*acts, return_exceptions=True)

    assert [UnicodeEncodeError, Acted] == [type(result) for result in results]
    assert [("mine",)] == query(files.path, "SELECT key_hash FROM record")
    assert [("a neighbour's",)] == query(files.path, "SELECT key_hash FROM audit")


async def test_a_step_that_fails_does_not_fail_its_neighbours(files: SqliteHarness) -> None:
    """A value that SQLite cannot hold is refused to whoever brought it; the rest of its batch is carried out."""
    store = await files.open()
    ids = [identity(f"key-{number}") for number in range(10)]
    with locked(files.path):
        claims = [asyncio.create_task(store.claim(each, ask(lease=2**70 if each is ids[4] else LEASE))) for each in ids]
        await asyncio.sleep(0)
    results = await asyncio.gather(*claims, return_exceptions=True)

    assert [Granted] * 4 + [OverflowError] + [Granted] * 5 == [type(result) for result in results]
    assert [(9,)] == query(files.path, "SELECT count(*) FROM record")


async def test_closing_carries_out_what_is_queued(files: SqliteHarness) -> None:
    """What was asked before `close` is answered, and is in the file; what is asked after it is refused."""
    store = await files.open()
    claims = [asyncio.create_task(granted(store, identity(f"key-{number}"))) for number in range(30)]
    await asyncio.sleep(0)

    await store.close()
    await asyncio.gather(*claims)

    assert [(30,)] == query(files.path, "SELECT count(*) FROM record")
    with pytest.raises(StoreUnavailableError, match="it is not open"):
        await store.claim(ME, ask())


# Sweeping


async def test_a_sweep_removes_what_time_has_ended(files: SqliteHarness) -> None:
    """Without anyone asking for them, expired answers and forgotten records leave the file; in flight and unknown stay."""
    store = await files.open()
    phases = "SELECT key_hash, phase, answer FROM record ORDER BY key_hash"
    in_flight, unknown, completed = (identity(name) for name in ("in flight", "unknown", "completed"))
    await granted(store, in_flight)
    await store.mark_unknown(unknown, await granted(store, unknown), Doubt(500, answer=ANSWER))
    await store.complete(completed, await granted(store, completed), completion())
    stay = [("in flight", "in_flight", None), ("unknown", "unknown", ANSWER)]
    seen = []
    for seconds in (DAY + 1, 7 * DAY):
        files.clock.advance(seconds)
        for _ in range(2):  # the sweep comes after the first, and before the second is answered
            await store.read(identity("another"))
        seen.append(query(files.path, phases))

    assert [[("completed", "expired", None), *stay], stay] == seen


async def test_a_sweep_removes_trails_that_are_kept_no_longer(files: SqliteHarness) -> None:
    """A trail leaves the file some time after its last act, all of it; one with a newer act stays whole."""
    store = await files.open()
    ids = [identity(name) for name in ("old", "acted on again")]
    for each in (*ids, ids[1]):
        hold = await granted(store, each)
        await store.mark_unknown(each, hold, Doubt())
        await store.forget(each, hold.fence, "ada", "test data")
        files.clock.advance(10)
    files.clock.advance(AUDIT_KEPT / MICROSECONDS - 15)

    for _ in range(2):  # the sweep comes after the first, and before the second is answered
        await store.read(ME)

    assert [("acted on again",)] * 2 == query(files.path, "SELECT key_hash FROM audit")


async def test_a_sweep_is_of_bounded_size(files: SqliteHarness) -> None:
    """However many records end at once, one transaction changes a few hundred of them; the next one goes on with the rest."""
    store = await files.open()
    ids = [identity(f"key-{number}") for number in range(SWEEP_ROWS + 10)]
    holds = await asyncio.gather(*[granted(store, each) for each in ids])
    await asyncio.gather(*[store.complete(*each, completion()) for each in zip(ids, holds, strict=True)])
    before = commits(files.path)
    files.clock.advance(DAY + 1)

    for _ in range(3):  # two sweeps are done before the third is answered
        await store.read(ME)

    assert 2 == commits(files.path) - before
    assert [("expired", SWEEP_ROWS + 10)] == query(files.path, "SELECT phase, count(*) FROM record GROUP BY phase")


# Several processes


async def test_watchers_do_not_pile_up(files: SqliteHarness) -> None:
    """Each process is noted once with a record that it waits for, and is gone from the file when that is settled."""
    holder, first, second = await files.open(), await files.open(), await files.open()
    hold = await granted(holder, ME)
    watchers = "SELECT watchers FROM record"
    for store in (first, second, first, second):
        with store.watch(ME):
            await store.claim(ME, ask(), watched=True)
    ((noted,),) = query(files.path, watchers)
    await holder.complete(ME, hold, completion())

    assert 2 == len(set(str(noted).split()))
    assert 2 == len(str(noted).split())
    assert [("",)] == query(files.path, watchers)


async def test_one_of_two_processes_is_granted_and_the_other_is_woken(files: SqliteHarness) -> None:
    """Two processes claim one key at once: one may forward, and its settlement wakes the other, which finds the answer."""
    await files.open()
    async with worker(files.path) as one, worker(files.path) as two:
        answers = await asyncio.gather(one.ask("claim key"), two.ask("claim key"))
        holder, waiter = (one, two) if answers[0] == "granted" else (two, one)
        assert ["granted", "in_flight"] == sorted(answers)
        assert "watching" == await waiter.ask("await key")

        assert "written" == await holder.ask("complete key")
        assert "completed" == await waiter.answer()


async def test_processes_that_write_at_once_all_get_through(files: SqliteHarness) -> None:
    """Stores that contend for one file wait for each other: every claim is granted, and nothing is lost."""
    stores = [await files.open() for _ in range(4)]

    async def write(store: SqliteStore, name: str) -> None:
        for number in range(10):
            of = identity(f"{name}-{number}")
            await store.complete(of, await granted(store, of), completion())

    await asyncio.gather(*[write(store, f"{place}-{lane}") for place, store in enumerate(stores) for lane in range(5)])

    assert [("completed", 200)] == query(files.path, "SELECT phase, count(*) FROM record GROUP BY phase")


async def test_the_log_outlives_a_process_that_ends(files: SqliteHarness) -> None:
    """A process that closes the file knows that others still use it, and does not take their write-ahead log away."""
    store, _ = await files.open(), await files.open()
    await granted(store, ME)
    before = log(files.path).st_ino
    async with worker(files.path) as other:
        assert "granted" == await other.ask("claim another")
        assert other.process.stdin is not None
        other.process.stdin.close()
        assert 0 == await other.process.wait()

    assert before == log(files.path).st_ino
    assert [("another",), ("key",)] == query(files.path, "SELECT key_hash FROM record ORDER BY key_hash")


async def test_processes_that_start_at_once_make_one_schema(tmp_path: Path) -> None:
    """Workers that find no file all start, whoever of them makes it."""
    stores = [SqliteStore(tmp_path / "records.db", clock=HostClock(Clock())) for _ in range(4)]

    await asyncio.gather(*[store.start() for store in stores])
    await asyncio.gather(*[store.check() for store in stores])

    for store in stores:
        await store.close()


async def test_a_killed_process_leaves_what_it_was_granted(files: SqliteHarness) -> None:
    """A process that is killed right after its claim has left the record: in flight, and unknown when its lease is over."""
    async with worker(files.path) as doomed:
        assert "granted" == await doomed.ask("claim key")
        doomed.process.kill()
        await doomed.process.wait()

    store = await files.open()

    assert [("key", "in_flight")] == query(files.path, "SELECT key_hash, phase FROM record")
    files.clock.advance(100 * 366 * DAY)
    assert Phase.UNKNOWN is (await found(store, ME)).phase
