"""What the SQLite store promises of its journals beyond the contract: shared commits, restarts, sweeps, older files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from idemproxy.core.journal import ABSENT, Conflict, Entry, Journal, Memory, Note, Saved, WorkflowIdentity
from idemproxy.core.record import MICROSECONDS, Phase
from idemproxy.core.transition import Verb
from idemproxy.store import sqlite_journal
from idemproxy.store.base_host import HostClock
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_file import SCHEMA_VERSION, open_file
from idemproxy.store.sqlite_writer import SWEEP_ROWS
from tests.store.harness import Clock, SqliteHarness
from tests.store.sqlite_steps import commits, locked, query
from tests.store.steps import ANSWER, found, granted, identity

HOUR: Final = 3600
KEPT: Final = HOUR * MICROSECONDS
ROWS: Final = "SELECT (SELECT count(*) FROM workflow), (SELECT count(*) FROM step), (SELECT count(*) FROM agent_memory)"
SCHEMA_1: Final = """
    CREATE TABLE record (
        scope TEXT NOT NULL, upstream TEXT NOT NULL, key_hash TEXT NOT NULL, phase TEXT NOT NULL, fingerprint TEXT NOT NULL,
        fence INTEGER NOT NULL, owner TEXT NOT NULL, route TEXT NOT NULL, claimed_at INTEGER NOT NULL,
        lease_until INTEGER NOT NULL, settled_at INTEGER, expires_at INTEGER, forget_at INTEGER,
        status INTEGER, source TEXT NOT NULL, watchers TEXT NOT NULL,
        answer BLOB,
        due_at INTEGER AS (CASE phase WHEN 'completed' THEN min(expires_at, forget_at) WHEN 'expired' THEN forget_at END),
        UNIQUE (scope, upstream, key_hash)
    );
    CREATE INDEX record_due ON record (due_at) WHERE due_at IS NOT NULL;
    CREATE TABLE audit (
        scope TEXT NOT NULL, upstream TEXT NOT NULL, key_hash TEXT NOT NULL, verb TEXT NOT NULL, who TEXT NOT NULL,
        why TEXT NOT NULL, fence INTEGER NOT NULL, from_phase TEXT NOT NULL, at INTEGER NOT NULL, kept_until INTEGER NOT NULL
    );
    CREATE INDEX audit_identity ON audit (scope, upstream, key_hash);
    CREATE INDEX audit_kept_until ON audit (kept_until);
    CREATE TABLE clock (boot TEXT NOT NULL, offset INTEGER NOT NULL, latest INTEGER NOT NULL);
    PRAGMA application_id = 1768187245;
    PRAGMA user_version = 1;
"""
"""What the program before the journals made of a new file."""


def workflow(name: str = "ab12") -> WorkflowIdentity:
    """Whose journal."""
    return WorkflowIdentity("shared", name)


def note(name: str = "step", kept: int = KEPT) -> Note:
    """A step whose record has a key of this name."""
    return Note(identity(name), "seats", kept, name)


async def names(store: SqliteStore, of: WorkflowIdentity) -> Sequence[str | None]:
    """The steps of a journal that must be there."""
    read = await store.journals.journal(of)
    assert read is not None
    return [entry.note.step for entry in read[0].entries]


# Durability and groups


async def test_a_note_and_a_claim_that_are_asked_together_share_one_commit(files: SqliteHarness) -> None:
    """What a covered request of a workflow writes before it is forwarded costs one flush, also for 64 of them at once."""
    store = await files.open()
    before = commits(files.path)
    with locked(files.path):
        tasks = [
            asyncio.create_task(task)
            for number in range(64)
            for task in (
                store.journals.note(workflow(f"{number % 8}"), note(f"step {number}")),
                granted(store, identity(f"step {number}")),
            )
        ]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert 1 == commits(files.path) - before
    assert [f"step {number}" for number in range(3, 64, 8)] == await names(store, workflow("3"))


async def test_reading_a_journal_is_not_committed(files: SqliteHarness) -> None:
    """Neither is a save that meets a conflict, nor one that is asked again."""
    store = await files.open()
    await store.journals.note(workflow(), note())
    await store.journals.save(workflow(), b"new", ABSENT, KEPT)
    before = commits(files.path)

    await store.journals.journal(workflow())
    await store.journals.save(workflow(), b"newer", 17, KEPT)
    await store.journals.save(workflow(), b"new", ABSENT, KEPT)

    assert before == commits(files.path)


async def test_a_note_that_cannot_be_kept_does_not_fail_its_neighbours(files: SqliteHarness) -> None:
    """A value that SQLite cannot hold is refused to whoever brought it; the notes and claims beside it are kept."""
    store = await files.open()
    with locked(files.path):
        tasks: list[asyncio.Task[object]] = [
            asyncio.create_task(store.journals.note(workflow(), note(step, kept)))
            for step, kept in (("1", KEPT), ("2", 2**70), ("3", KEPT))
        ]
        tasks.append(asyncio.create_task(granted(store, identity("1"))))
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [OverflowError] == [type(result) for result in results if isinstance(result, Exception)]
    assert ["1", "3"] == await names(store, workflow())
    assert [("1",)] == query(files.path, "SELECT key_hash FROM record")


async def test_a_journal_survives_a_restart(files: SqliteHarness) -> None:
    """Steps, memory and their end are found again by another process that opens the file."""
    store = await files.open()
    await asyncio.gather(*[store.journals.note(workflow(), note(f"step {number}")) for number in range(10)])
    await store.journals.save(workflow(), b"new", ABSENT, KEPT)
    before = await store.journals.journal(workflow())
    await store.close()

    after = await (await files.open()).journals.journal(workflow())

    assert before is not None
    assert after is not None
    assert before[0] == after[0]


# Sweeping


async def test_a_sweep_removes_journals_that_are_kept_no_longer(files: SqliteHarness) -> None:
    """Without anyone asking for it, a journal that is over leaves the file with its steps and its memory; others stay whole."""
    store = await files.open()
    for of, kept in (("over", KEPT), ("kept", 2 * KEPT)):
        await store.journals.note(workflow(of), note("1", kept))
        await store.journals.note(workflow(of), note("2", kept))
        await store.journals.save(workflow(of), b"new", ABSENT, kept)
    files.clock.advance(HOUR + 60)

    for _ in range(2):  # the sweep comes after the first, and before the second is answered
        await store.read(identity())

    assert [("kept",)] == query(files.path, "SELECT id_hash FROM workflow")
    assert [(1, 2, 1)] == query(files.path, ROWS)
    assert ["1", "2"] == await names(store, workflow("kept"))


async def test_a_sweep_of_journals_is_of_bounded_size(files: SqliteHarness) -> None:
    """However long a journal is, one transaction takes a few hundred of its steps; the next one goes on with the rest."""
    store = await files.open()
    await asyncio.gather(*[store.journals.note(workflow(), note(f"{number}")) for number in range(SWEEP_ROWS + 10)])
    before = commits(files.path)
    files.clock.advance(HOUR + 60)

    for _ in range(3):  # two sweeps are done before the third is answered
        await store.read(identity())

    assert 2 == commits(files.path) - before
    assert [(0, 0, 0)] == query(files.path, ROWS)


@pytest.mark.parametrize("swept", [0, 2])
def test_nothing_comes_back_of_a_journal_that_is_over(tmp_path: Path, swept: int) -> None:
    """Whether sweeps have taken nothing of it yet, or some: nobody sees what is left, and the next note or save removes it."""
    with closing(open_file(tmp_path / "records.db", create=True)) as connection:
        for of in (workflow("noted"), workflow("saved")):
            sqlite_journal.note(connection, [sqlite_journal.Noted(of, note(f"{number}")) for number in range(5)], 1)
            sqlite_journal.save(connection, of, b"old", ABSENT, KEPT, 1)
        over = 1 + KEPT
        sqlite_journal.sweep(connection, over, swept)
        seen = sqlite_journal.journal(connection, workflow("noted"), over)
        stale = sqlite_journal.save(connection, workflow("saved"), b"new", 1, KEPT, over)
        saved = sqlite_journal.save(connection, workflow("saved"), b"new", ABSENT, KEPT, over)
        sqlite_journal.note(connection, [sqlite_journal.Noted(workflow("noted"), note("new"))], over)
        left = [sqlite_journal.journal(connection, workflow(of), over) for of in ("noted", "saved")]
        rows = connection.execute(ROWS).fetchall()

    assert (None, Conflict(ABSENT), Saved(over)) == (seen, stale, saved)
    assert [
        (Journal((Entry(note("new"), over),), None, over + KEPT), over),
        (Journal((), Memory(b"new", over, ABSENT), over + KEPT), over),
    ] == left
    assert [(2, 1, 1)] == rows


# Files of older programs


def old_file(path: Path) -> None:
    """As the program before the journals left it: with a record that is completed, one that is unknown, and a trail."""
    at = 1_699_999_000 * MICROSECONDS
    columns = (
        "scope, upstream, key_hash, phase, fingerprint, fence, owner, route, claimed_at, lease_until, settled_at, "
        "expires_at, forget_at, status, source, watchers, answer"
    )
    told = ("v1:same", at, "owner", "charges", at, at + 15)
    records = [
        ("shared", "payments", "done", "completed", *told, at + 9, at + 10**12, at + 2 * 10**12, 201, "answered", "", ANSWER),
        ("shared", "payments", "open", "unknown", *told, at + 9, None, None, None, "answered", "", None),
    ]
    act = ("shared", "payments", "done", "resolve_completed", "ada", "it arrived", at, "unknown", at + 9, at + 10**15)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(f"PRAGMA journal_mode = WAL; {SCHEMA_1}")
        holes = ", ".join("?" * len(records[0]))
        connection.executemany(f"INSERT INTO record ({columns}) VALUES ({holes})", records)  # noqa: S608 -- our own names
        connection.execute("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", act)


async def test_a_file_without_journals_gains_them_in_its_place(files: SqliteHarness) -> None:
    """What an older program recorded is replayed and held as before, and journals are kept beside it."""
    old_file(files.path)
    store = await files.open()

    done, still_open = await found(store, identity("done")), await found(store, identity("open"))
    trail = await store.audit(identity("done"))
    await store.journals.note(workflow(), note())
    await store.journals.save(workflow(), b"new", ABSENT, KEPT)

    assert (Phase.COMPLETED, 201, ANSWER) == (done.phase, done.status, done.answer)
    assert (Phase.UNKNOWN, None) == (still_open.phase, still_open.status)
    assert [(Verb.RESOLVE_COMPLETED, "ada")] == [(act.verb, act.who) for act in trail]
    assert ["step"] == await names(store, workflow())
    assert [(SCHEMA_VERSION,)] == query(files.path, "PRAGMA user_version")


async def test_a_file_that_was_brought_up_is_as_a_new_one(tmp_path: Path) -> None:
    """Tables, indexes and triggers are the same, however the file came by them."""
    shapes = []
    for name in ("old.db", "new.db"):
        if name == "old.db":
            old_file(tmp_path / name)
        store = SqliteStore(tmp_path / name, clock=HostClock(Clock()))
        await store.start()
        await store.close()
        rows = query(tmp_path / name, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")
        shapes.append([(kind, of, " ".join(str(sql).replace("( ", "(").split())) for kind, of, sql in rows])

    old, new = ([(kind, of, sql.replace("( ", "(").replace(" )", ")")) for kind, of, sql in shape] for shape in shapes)
    assert new == old


async def test_processes_that_start_at_once_bring_an_old_file_up_once(tmp_path: Path) -> None:
    """Workers that find an old file all start, whoever of them changes it."""
    old_file(tmp_path / "records.db")
    stores = [SqliteStore(tmp_path / "records.db", clock=HostClock(Clock())) for _ in range(4)]

    await asyncio.gather(*[store.start() for store in stores])
    results = await asyncio.gather(*[store.journals.save(workflow(), b"new", ABSENT, KEPT) for store in stores])

    for store in stores:
        await store.close()
    assert isinstance(results[0], Saved)
    assert [results[0]] * 4 == results


async def test_an_older_program_that_still_runs_on_the_file_does_no_harm(files: SqliteHarness) -> None:
    """It sets the version back whenever it is asked whether it is ready; the journals stay, and the next start mends that."""
    store = await files.open()
    await store.journals.note(workflow(), note())
    with closing(files.connect()) as older:
        older.execute("PRAGMA user_version = 1")

    other = await files.open()

    assert [(SCHEMA_VERSION,)] == query(files.path, "PRAGMA user_version")
    assert ["step"] == await names(other, workflow())


@pytest.mark.parametrize("version", [SCHEMA_VERSION, SCHEMA_VERSION + 1])
async def test_to_look_whether_the_file_takes_writes_leaves_its_version(files: SqliteHarness, version: int) -> None:
    """A newer program may have raised it under this one."""
    store = await files.open()
    with closing(files.connect()) as newer:
        newer.execute(f"PRAGMA user_version = {version}")
    before = commits(files.path)

    await store.check()

    assert [(version,)] == query(files.path, "PRAGMA user_version")
    assert 1 == commits(files.path) - before
