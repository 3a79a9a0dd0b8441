"""What the SQLite store promises when its file is another, busy, full, read-only or gone: clear words, and faults that pass."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from idemproxy.core.record import Phase
from idemproxy.store import sqlite_writer
from idemproxy.store.base import StoreError, StoreUnavailableError
from idemproxy.store.base_host import HostClock
from idemproxy.store.sqlite import SqliteStore
from idemproxy.store.sqlite_file import SCHEMA_VERSION, open_file
from tests.store.harness import Clock, SqliteHarness
from tests.store.sqlite_steps import locked, log, query, worker
from tests.store.steps import ask, completion, found, granted, identity

ME = identity()


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


# Faults at the start


async def test_the_file_is_for_its_owner_alone(files: SqliteHarness) -> None:
    """The file and its log can be read by no one else, whatever the umask: they hold what upstreams answered."""
    store = await files.open()
    await granted(store, ME)

    assert {0o600} == {path.stat().st_mode & 0o777 for path in files.path.parent.iterdir()}


async def refusal(path: Path) -> str:
    """Why a store on `path` does not start."""
    with pytest.raises(StoreError) as raised:
        await SqliteStore(path, clock=HostClock(Clock())).start()
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
