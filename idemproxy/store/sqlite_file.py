"""The SQLite file: how it is opened, its schema, and what its errors mean.

Write-ahead log with `synchronous=FULL`: a commit has reached the disk when it returns, and readers do not block writers.
"""

from __future__ import annotations

import os
import sqlite3
from itertools import chain
from pathlib import Path
from typing import Final

from idemproxy.store.base import StoreError, StoreUnavailableError

SCHEMA_VERSION: Final = 2
_APPLICATION: Final = int.from_bytes(b"idem", "big")  # PRAGMA application_id: whose file this is

# One row for each identity. The primary key of the table is SQLite's own row number, so that what happens at the same time
# lies side by side on disk; only the small unique index is in the random order of hashes.
# `due_at`: when time alone changes the record next; never, for one in flight or unknown.
# `watchers`: loopback UDP ports, separated by spaces, of the processes to tell when the record is settled.
# `answer` comes last: reading the columns before it does not read its pages.
# The audit trail outlives its record, so nothing ties the two tables; all entries of one identity have the same `kept_until`.
# `clock` has one row, see sqlite_clock.
_RECORDS: Final = (
    """
    CREATE TABLE record (
        scope TEXT NOT NULL,
        upstream TEXT NOT NULL,
        key_hash TEXT NOT NULL,
        phase TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        fence INTEGER NOT NULL,
        owner TEXT NOT NULL,
        route TEXT NOT NULL,
        claimed_at INTEGER NOT NULL,
        lease_until INTEGER NOT NULL,
        settled_at INTEGER,
        expires_at INTEGER,
        forget_at INTEGER,
        status INTEGER,
        source TEXT NOT NULL,
        watchers TEXT NOT NULL,
        answer BLOB,
        due_at INTEGER AS (CASE phase WHEN 'completed' THEN min(expires_at, forget_at) WHEN 'expired' THEN forget_at END),
        UNIQUE (scope, upstream, key_hash)
    )
    """,
    "CREATE INDEX record_due ON record (due_at) WHERE due_at IS NOT NULL",
    """
    CREATE TABLE audit (
        scope TEXT NOT NULL,
        upstream TEXT NOT NULL,
        key_hash TEXT NOT NULL,
        verb TEXT NOT NULL,
        who TEXT NOT NULL,
        why TEXT NOT NULL,
        fence INTEGER NOT NULL,
        from_phase TEXT NOT NULL,
        at INTEGER NOT NULL,
        kept_until INTEGER NOT NULL
    )
    """,
    "CREATE INDEX audit_identity ON audit (scope, upstream, key_hash)",
    "CREATE INDEX audit_kept_until ON audit (kept_until)",
    "CREATE TABLE clock (boot TEXT NOT NULL, offset INTEGER NOT NULL, latest INTEGER NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION}",
)

# `number` is SQLite's own row number under a name, which it keeps when the file is compacted: steps are ordered by it.
# What an agent keeps may be long, and each note changes the row of its workflow: so that has a table of its own.
# Where an older program still runs on the file, it may set the version back, and these statements come again.
_JOURNALS: Final = (
    """
    CREATE TABLE IF NOT EXISTS workflow (
        number INTEGER PRIMARY KEY,
        scope TEXT NOT NULL,
        id_hash TEXT NOT NULL,
        forget_at INTEGER NOT NULL,
        UNIQUE (scope, id_hash)
    )
    """,
    "CREATE INDEX IF NOT EXISTS workflow_forget_at ON workflow (forget_at)",
    """
    CREATE TABLE IF NOT EXISTS step (
        number INTEGER PRIMARY KEY,
        workflow INTEGER NOT NULL,
        scope TEXT NOT NULL,
        upstream TEXT NOT NULL,
        key_hash TEXT NOT NULL,
        route TEXT NOT NULL,
        kept INTEGER NOT NULL,
        step TEXT,
        action TEXT,
        at INTEGER NOT NULL,
        UNIQUE (workflow, scope, upstream, key_hash)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS agent_memory (
        workflow INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        before INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    """
    CREATE TRIGGER IF NOT EXISTS workflow_gone AFTER DELETE ON workflow BEGIN
        DELETE FROM step WHERE workflow = old.number;
        DELETE FROM agent_memory WHERE workflow = old.number;
    END
    """,
)

_CHANGES: Final = (_RECORDS, _JOURNALS)
"""What leads from each version to the next, from that of a new file on."""

# Primary result code of SQLite -> (heals: time or an operator can mend it under a running proxy, what it means and what to do).
_MEANINGS: Final = {
    sqlite3.SQLITE_BUSY: (True, "another process holds its lock: stop whatever keeps a transaction open on it"),
    sqlite3.SQLITE_FULL: (True, "the disk is full: free some space"),
    sqlite3.SQLITE_IOERR: (True, "reading or writing it failed: look for a failing or full disk, or a limit on file sizes"),
    sqlite3.SQLITE_READONLY: (False, "it is read-only: let this user write the file and its directory"),
    sqlite3.SQLITE_PERM: (False, "permission is denied: let this user read and write the file and its directory"),
    sqlite3.SQLITE_CANTOPEN: (False, "it cannot be opened: check that it is a file and that this user may write its directory"),
    sqlite3.SQLITE_NOTADB: (False, "it is not a SQLite database: name another path, or move the file away"),
    sqlite3.SQLITE_CORRUPT: (False, "it is damaged: restore it from a backup"),
}


def explained(error: sqlite3.Error, path: Path) -> StoreError:
    """What an error of SQLite means, in our words: the one place where its exceptions are mapped."""
    heals, meaning = _MEANINGS.get(primary_code(error), (True, "SQLite reports an error"))
    mapped = (StoreUnavailableError if heals else StoreError)(f"sqlite store {path}: {meaning} ({error})")
    mapped.__cause__ = error
    return mapped


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension, 0 for an error of Python's own module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """A connection to the store's file, durable and with the schema in place, which an older file is brought up to.

    With `create` a missing file is made, readable by its owner alone. Without, it is an outage: a directory that is
    for the moment not mounted must not be taken for a store without records.
    Raises StoreError, StoreUnavailableError, and sqlite3.Error for the caller to map.
    """
    if create:
        _create_file(path)
    elif not path.exists():
        raise StoreUnavailableError(f"sqlite store {path}: the file is gone: put it back, or restart to begin without records")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
    try:
        _configure(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_file(path: Path) -> None:
    """Make the file if there is none. One that is there is not even opened: to close it would drop this process's locks on it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        raise StoreError(f"sqlite store {path}: the directory {path.parent} does not exist: create it") from error
    except OSError as error:
        raise StoreError(f"sqlite store {path}: the file cannot be made: {error.strerror}") from error


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection, path)  # before anything is written to a file that may be another program's
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"sqlite store {path}: its schema has version {version} and this program knows up to {SCHEMA_VERSION}: "
            "run the newer idemproxy that wrote it, or name another path"
        )
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"sqlite store {path}: its file system cannot hold a write-ahead log: name a path on a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 4000")  # pages, 16 MB: each checkpoint costs two flushes more than a commit
    connection.execute("PRAGMA temp_store = MEMORY")  # a statement of many rows keeps what it changes, to be able to take it back
    connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone leaves data in the drive's cache; no effect elsewhere
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    if version < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection, path)  # another process may have been first, with this program or a newer one
        for statement in chain.from_iterable(_CHANGES[version:]):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(version, SCHEMA_VERSION)}")
        connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the schema; 0 for a new file. Raises StoreError when the file holds something else."""
    version, application, tables = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema) "
        "FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    if application != _APPLICATION and (version, tables) != (0, 0):
        raise StoreError(f"sqlite store {path}: it is the database of another program: name another path")
    return int(version)
