"""What the SQLite store promises beyond the contract: durable group commits, many processes on one file, faults that pass."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from idemproxy.core.record import MICROSECONDS, Phase
from idemproxy.core.transition import Acted, Doubt, Found, Granted
from idemproxy.store import sqlite_writer
from idemproxy.store.base import AUDIT_KEPT, StoreError, StoreUnavailableError
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_file import SCHEMA_VERSION, open_file
from idemproxy.store.sqlite_writer import SWEEP_ROWS
from tests.store.harness import Clock, SqliteHarness
from tests.store.steps import ANSWER, LEASE, WITHIN, ask, completion, found, granted, identity

ROOT = Path(__file__).parents[2]
DAY = 86_400
ME = identity()


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    """An empty directory, and the stores that a test opens on one file in it."""
    harness = SqliteHarness(tmp_path)
    yield harness
    await harness.close()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's write lock, as a busy process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What is in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def log(path: Path) -> os.stat_result:
    """What the system knows of the write-ahead log."""
    return Path(f"{path}-wal").stat()


def commits(path: Path) -> int:
    """How many transactions the write-ahead log holds: each ends with a frame that says how large the file is then."""
    logged = Path(f"{path}-wal").read_bytes()
    page = int.from_bytes(logged[8:12], "big")
    salt = logged[16:24]
    frames = (logged[at : at + 24] for at in range(32, len(logged), 24 + page))
    return sum(frame[8:16] == salt and frame[4:8] != bytes(4) for frame in frames)


class Worker:
    """Another process with a store on the same file (tests.store.sqlite_process)."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def tell(self, command: str) -> None:
        """Send a command without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        await self.process.stdin.drain()

    async def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WITHIN):
            return (await self.process.stdout.readline()).decode().strip()

    async def ask(self, command: str) -> str:
        """Send a command and wait for its answer."""
        await self.tell(command)
        return await self.answer()


@asynccontextmanager
async def worker(path: Path) -> AsyncIterator[Worker]:
    """A started worker process; it is killed at the end."""
    arguments = (sys.executable, "-m", "tests.store.sqlite_process", str(path))
    process = await asyncio.create_subprocess_exec(*arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    started = Worker(process)
    try:
        assert "ready" == await started.answer()
        yield started
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a while, if we are root, since to root no file is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


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
    files.clock.advance(DAY + 1)
    before = commits(files.path)

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
    stores = [SqliteStore(tmp_path / "records.db", clock=Clock()) for _ in range(4)]

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


# Faults at the start


async def test_the_file_is_for_its_owner_alone(files: SqliteHarness) -> None:
    """The file and its log can be read by no one else, whatever the umask: they hold what upstreams answered."""
    store = await files.open()
    await granted(store, ME)

    assert {0o600} == {path.stat().st_mode & 0o777 for path in files.path.parent.iterdir()}


async def refusal(path: Path) -> str:
    """Why a store on `path` does not start."""
    with pytest.raises(StoreError) as raised:
        await SqliteStore(path, clock=Clock()).start()
    assert StoreError is type(raised.value)
    return str(raised.value)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """The store makes its file, but not the directory."""
    path = tmp_path / "missing" / "records.db"

    assert f"sqlite store {path}: the directory {path.parent} does not exist: create it" == await refusal(path)


async def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    """A path that is a directory is refused, with what to look at."""
    expected = "it cannot be opened: check that it is a file and that this user may write its directory"

    assert f"sqlite store {tmp_path}: {expected} (unable to open database file)" == await refusal(tmp_path)


async def test_a_file_that_is_not_a_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Garbage is named as such, and not overwritten."""
    path = tmp_path / "records.db"
    path.write_bytes(b"something else entirely" * 100)

    assert f"sqlite store {path}: it is not a SQLite database: name another path, or move the file away" in await refusal(path)
    assert b"something else entirely" * 100 == path.read_bytes()


@pytest.mark.parametrize("version", [0, 1])
async def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    """A database that has tables, and is not ours, is not made ours."""
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()

    assert f"sqlite store {path}: it is the database of another program: name another path" == await refusal(path)
    assert before == path.read_bytes()


async def test_a_newer_schema_is_refused(files: SqliteHarness) -> None:
    """A file that a newer idemproxy wrote is not touched by an older one."""
    await (await files.open()).close()
    with closing(sqlite3.connect(files.path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")

    assert (
        f"sqlite store {files.path}: its schema has version {SCHEMA_VERSION + 1} and this program knows up to {SCHEMA_VERSION}: "
        "run the newer idemproxy that wrote it, or name another path"
    ) == await refusal(files.path)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that everyone may enter, unlike pytest's own, and no one may write, with a file likewise."""
    directory = Path(tempfile.mkdtemp(prefix="idemproxy-"))
    (directory / "read-only.db").touch(0o444)
    directory.chmod(0o555)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


async def test_a_read_only_file_is_refused(open_directory: Path) -> None:
    """A file that may not be written is no store, and the reason is said at the start."""
    path = open_directory / "read-only.db"
    expected = "it is read-only: let this user write the file and its directory (attempt to write a readonly database)"
    with unprivileged():
        assert f"sqlite store {path}: {expected}" == await refusal(path)


async def test_a_directory_that_may_not_be_written_is_refused(open_directory: Path) -> None:
    """Where the file cannot be made, the system's reason is said at the start."""
    path = open_directory / "records.db"
    with unprivileged():
        assert f"sqlite store {path}: the file cannot be made: Permission denied" == await refusal(path)


# Faults at work, and recovery without a restart


async def test_a_busy_file_is_an_outage_that_passes(files: SqliteHarness) -> None:
    """When another process keeps the lock, steps fail after the time allowed, all of them; when it lets go, they work."""
    store = await files.open(busy_timeout=0.02)
    with locked(files.path):
        refused = await asyncio.gather(store.check(), store.claim(ME, ask()), store.read(ME), return_exceptions=True)

    text = f"sqlite store {files.path}: another process holds its lock: stop whatever keeps a transaction open on it"
    assert [(StoreUnavailableError, f"{text} (database is locked)")] * 3 == [(type(each), str(each)) for each in refused]
    await store.check()
    await granted(store, ME)


async def test_a_store_starts_while_its_file_is_busy(files: SqliteHarness) -> None:
    """An outage at the start is no error: the store is not ready, and recovers by itself."""
    await (await files.open()).close()
    with closing(sqlite3.connect(files.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        store = await files.open(busy_timeout=0.02)
        with pytest.raises(StoreUnavailableError, match="another process holds its lock"):
            await store.check()

    await store.check()


async def test_a_full_disk_is_an_outage_that_passes(files: SqliteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the file cannot grow, a completion fails and changes nothing; when there is room again, it is written."""
    allowed = 8

    def with_limit(path: Path, *, create: bool) -> sqlite3.Connection:
        connection = open_file(path, create=create)
        connection.execute(f"PRAGMA max_page_count = {allowed}")
        return connection

    monkeypatch.setattr(sqlite_writer, "open_file", with_limit)
    store = await files.open()
    hold = await granted(store, ME)

    with pytest.raises(StoreUnavailableError, match="the disk is full: free some space"):
        await store.complete(ME, hold, completion(bytes(100_000)))
    allowed = 1_000_000
    assert Phase.IN_FLIGHT is (await found(store, ME)).phase
    await store.complete(ME, hold, completion(bytes(100_000)))
    assert Phase.COMPLETED is (await found(store, ME)).phase


async def test_a_limit_on_the_files_size_is_an_outage_that_passes(files: SqliteHarness) -> None:
    """When the system refuses to let the log grow, writes fail with what to look for; when it allows it, they work."""
    async with worker(files.path) as process:
        assert "granted" == await process.ask("claim key")
        size = log(files.path).st_size
        assert "limited" == await process.ask(f"limit {size + 5_000}")

        refused = await process.ask("complete key")
        assert "reading or writing it failed: look for a failing or full disk, or a limit on file sizes" in refused
        assert "in_flight" == await process.ask("claim key")
        assert "limited" == await process.ask(f"limit {2**40}")
        assert "written" == await process.ask("complete key")


async def test_a_file_that_is_gone_is_an_outage_and_not_a_new_beginning(files: SqliteHarness) -> None:
    """When the file vanishes, as with its file system, nothing is made in its place; when it is back, so are the records."""
    store = await files.open()
    await granted(store, ME)
    await (await files.open()).check()
    aside = files.path.with_name("aside")
    aside.mkdir()
    parts = [path for path in files.path.parent.iterdir() if path.is_file()]
    for path in parts:
        path.rename(aside / path.name)

    with pytest.raises(StoreUnavailableError, match="the file is gone: put it back"):
        await store.claim(ME, ask())
    assert [aside] == list(files.path.parent.iterdir())

    for path in parts:
        (aside / path.name).rename(path)
    assert Phase.IN_FLIGHT is (await found(store, ME)).phase


async def test_a_file_that_was_replaced_is_the_one_that_is_written(files: SqliteHarness) -> None:
    """After another file was put at the path, records go there, where the other processes find them."""
    store = await files.open()
    other = SqliteHarness(files.path.parent / "other")
    other.path.parent.mkdir()
    await (await other.open()).close()
    for path in list(files.path.parent.glob("records.db*")):
        path.unlink()
    other.path.rename(files.path)

    await granted(store, ME)

    assert [("key",)] == query(files.path, "SELECT key_hash FROM record")
