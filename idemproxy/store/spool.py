"""The spool: what a proxy could not tell the store, kept on its own disk until the store takes it.

One directory serves the proxies of one host. Each takes a slot of its own in it, a SQLite file that it holds locked for as long
as it lives, and to which it gives a name of its own, the instance. Who gets a slot of the same store later, or a neighbour that
finds it unlocked, knows that the one before is dead, and is its heir. What lies in the slot is written to the store by the heir;
the claims that carry the dead one's name and are still in flight are orphans.

A name that is known to be dead is first written down as such in the slot where it stood, and only then told to a neighbour: no
later holder has it, wherever a crash comes, and so nobody who lives is taken for dead.

The lock proves a death only where it lies: a copy of the directory (of a volume, a disk, an image) has locks of its own, and the
first holder may be alive beside it. So the name is bound to the place of the lock, which is its device and inode, in this boot of
this machine. Elsewhere it is dropped. What the slot keeps is written all the same: each ending carries its hold, so that a
second copy of it does no harm. But orphans are then not known as such, nor are they after a restart of the machine, or when the
directory was restored from a backup: they become unknown when their leases end. (A virtual machine that is copied while it runs
copies its boot as well: the two are not told apart.)
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from idemproxy.core.record import Identity, Source
from idemproxy.core.transition import Completion, Doubt, Ending, Hold, Release
from idemproxy.store.base import StoreError
from idemproxy.store.base_host import boot_id

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_SLOTS: Final = 256
_BATCH: Final = 64

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS slot (instance TEXT NOT NULL, place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS dead (instance TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL, upstream TEXT NOT NULL, key_hash TEXT NOT NULL,
    fence INTEGER NOT NULL, owner TEXT NOT NULL, fingerprint TEXT NOT NULL, route TEXT NOT NULL, claimed_at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status INTEGER, retention INTEGER, expired_mark INTEGER, source TEXT, since INTEGER, back_fence INTEGER, back_owner TEXT,
    answer BLOB
);
"""
_COLUMNS: Final = (
    "scope, upstream, key_hash, fence, owner, fingerprint, route, claimed_at,"
    " kind, status, retention, expired_mark, source, since, back_fence, back_owner, answer"
)
_INSERT: Final = f"INSERT INTO entry ({_COLUMNS}) VALUES ({', '.join('?' * 17)})"  # noqa: S608 - names and marks only
_OLDEST: Final = f"SELECT id, {_COLUMNS} FROM entry ORDER BY id LIMIT ?"  # noqa: S608 - names only


@dataclass(frozen=True, slots=True)
class Entry:
    """A settlement that waits for the store."""

    identity: Identity
    hold: Hold
    ending: Ending


class SpoolFullError(StoreError):
    """The spool has reached its bound; the settlement is not kept."""


class ClosedSpoolError(StoreError):
    """The spool was closed, with its process about to end; the settlement is not kept."""


class Spool:
    """One slot, open and locked. Its methods run SQLite in a thread, one at a time."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.entries: int
        self.bytes: int
        self._lock = lock
        self._turn = threading.Lock()
        self._closed = False
        self._passed_over: set[Path] = set()
        self._connection = _connect(path)
        try:
            self.instance = _named(self._connection, _place(lock))
            found = self._connection.execute("SELECT count(*), coalesce(sum(length(answer)), 0) FROM entry")
            self.entries, self.bytes = found.fetchone()
        except sqlite3.Error:
            self._connection.close()
            raise

    @classmethod
    def open(cls, directory: Path, store: str) -> Spool:
        """The first slot in `directory` for the store of that name that no living process holds. Raises StoreError.

        `store` tells the stores of one host apart: what one did not take must never be written to another. A slot that is there
        and cannot be used is passed over, and told; it is the directory's fault when a new one cannot be made.
        """
        name = hashlib.sha256(store.encode()).hexdigest()[:12]
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in range(_MAX_SLOTS):
                path = directory / f"{name}-{number}.db"
                is_old = path.exists()
                try:
                    if (lock := _locked(path)) is not None:
                        return cls._on(path, lock)
                except (OSError, sqlite3.Error) as error:
                    if not is_old:
                        raise
                    _tell_unusable(path, error)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"spool directory {directory}: {error}; choose one that can be written, on a disk that outlives the process"
            ) from error
        raise StoreError(f"spool directory {directory}: all {_MAX_SLOTS} slots are held by living processes, or cannot be used")

    @classmethod
    def _on(cls, path: Path, lock: int) -> Spool:
        try:
            return cls(path, lock)
        except (OSError, sqlite3.Error):
            os.close(lock)
            raise

    @property
    def is_full(self) -> bool:
        """Whether the next settlement would be refused."""
        return self.entries >= MAX_ENTRIES or self.bytes >= MAX_BYTES

    async def put(self, entry: Entry) -> None:
        """Keep a settlement, durably. Raises StoreError."""
        if self.is_full:
            raise SpoolFullError(f"spool {self.path}: full, with {self.entries} settlements of {self.bytes} bytes")
        await self._run(lambda: self._insert([_row(entry)]))

    async def after(self, number: int, limit: int) -> list[tuple[int, Entry]]:
        """The settlements above `number`, at most `limit`, in the order in which they came, each with its own number."""
        found = f"SELECT id, {_COLUMNS} FROM entry WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - names only
        rows = await self._run(lambda: self._connection.execute(found, (number, limit)).fetchall())
        return [(row[0], _entry(row[1:])) for row in rows]

    async def remove(self, number: int, entry: Entry) -> None:
        """Forget a settlement that the store has taken."""
        await self._run(lambda: self._delete(number, _size(entry)))

    async def adopt(self) -> list[str]:
        """Move what dead neighbours have left, of the same store in the same directory, into this slot. Raises StoreError.

        Returns the instances that are known to be dead, of this slot and of those, until they are forgotten. Endings are taken
        until the spool is half full, so that there is room for those of this process; the rest waits where it is.
        """
        return await asyncio.to_thread(self._adopt)

    async def forget(self, instances: Collection[str]) -> None:
        """Of these dead nothing is in flight any more. Raises StoreError."""
        await self._run(lambda: self._forget(instances))

    async def close(self) -> None:
        """Let go of the slot; what lies in it waits for the next holder. From now on every other call raises StoreError."""
        with suppress(ClosedSpoolError):
            await self._run(self._let_go)

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.to_thread(self._in_turn, work)

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        with self._turn:  # also when a caller was cancelled, and its thread is still at work
            if self._closed:
                raise ClosedSpoolError(f"spool {self.path}: it is closed, since the proxy ends")
            try:
                return work()
            except sqlite3.Error as error:
                raise StoreError(f"spool {self.path}: {error}") from error

    def _let_go(self) -> None:
        self._closed = True
        self._connection.close()
        os.close(self._lock)  # last: another process may now have the slot

    def _insert(self, rows: Collection[tuple[Any, ...]]) -> None:
        with self._connection:
            self._connection.executemany(_INSERT, rows)
        self.entries += len(rows)
        self.bytes += sum(len(row[-1] or b"") for row in rows)

    def _delete(self, number: int, size: int) -> None:
        with self._connection:
            self._connection.execute("DELETE FROM entry WHERE id = ?", (number,))
        self.entries -= 1
        self.bytes -= size

    def _remember(self, instances: Collection[str]) -> None:
        with self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO dead VALUES (?)", [(each,) for each in instances])

    def _forget(self, instances: Collection[str]) -> None:
        with self._connection:
            self._connection.executemany("DELETE FROM dead WHERE instance = ?", [(each,) for each in instances])

    def _adopt(self) -> list[str]:
        store = self.path.stem.rpartition("-")[0]
        for path in sorted(self.path.parent.glob(f"{store}-*.db")):
            try:
                if path != self.path and (lock := _locked(path)) is not None:
                    try:
                        self._take_over(path, lock)
                    finally:
                        os.close(lock)
            except (OSError, sqlite3.Error) as error:
                if path not in self._passed_over:
                    self._passed_over.add(path)
                    _tell_unusable(path, error)
        return self._in_turn(lambda: _dead(self._connection))

    def _take_over(self, path: Path, lock: int) -> None:
        """Into this slot first, and then out of the other: a crash in between leaves two copies, and no ending is lost."""
        if not path.exists():  # another neighbour was faster
            return
        with closing(_connect(path)) as theirs:
            _bury(theirs, _place(lock))
            dead = _dead(theirs)
            self._in_turn(lambda: self._remember(dead))
            with theirs:
                theirs.execute("DELETE FROM dead")
            while rows := theirs.execute(_OLDEST, (_BATCH,)).fetchall():
                moved = self._in_turn(partial(self._insert_what_fits, rows))
                with theirs:
                    theirs.executemany("DELETE FROM entry WHERE id = ?", [row[:1] for row in moved])
                if len(moved) < len(rows):
                    return
        if not path.with_name(f"{path.name}-wal").exists():
            path.unlink()  # it is empty, and need not be looked into again

    def _insert_what_fits(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        room = MAX_ENTRIES // 2 - self.entries if self.bytes < MAX_BYTES // 2 else 0
        fitting = rows[: max(0, room)]
        self._insert([row[1:] for row in fitting])
        return fitting


def _locked(path: Path) -> int | None:
    """The lock of a slot, taken; None when a living process has it. Raises OSError."""
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return lock


def _tell_unusable(path: Path, error: Exception) -> None:
    _log.warning("spool %s cannot be used, and what may lie in it is not written: %s; look at it, or move it away", path, error)


def _connect(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError), closing(path.open("x")):
        path.chmod(0o600)
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        connection.execute(_OLDEST, (0,))  # fails where the columns are those of another version
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _place(lock: int) -> str:
    """Where a lock lies: no two that processes hold at the same time have the same place."""
    found = os.fstat(lock)
    return f"{found.st_dev}:{found.st_ino}:{boot_id()}"


def _named(connection: sqlite3.Connection, place: str) -> str:
    """A new name for the slot, which is now held at this place."""
    drawn = secrets.token_hex(8)
    with connection:
        _move_to_the_dead(connection, place)
        connection.execute("INSERT INTO slot VALUES (?, ?)", (drawn, place))
    return drawn


def _bury(connection: sqlite3.Connection, place: str) -> None:
    """The slot has no name any more; that of its last holder is one of the dead, if it held the slot at this place."""
    with connection:
        _move_to_the_dead(connection, place)


def _move_to_the_dead(connection: sqlite3.Connection, place: str) -> None:
    connection.execute("INSERT OR IGNORE INTO dead SELECT instance FROM slot WHERE place = ?", (place,))
    connection.execute("DELETE FROM slot")


def _dead(connection: sqlite3.Connection) -> list[str]:
    return [str(instance) for (instance,) in connection.execute("SELECT instance FROM dead ORDER BY rowid")]


def _size(entry: Entry) -> int:
    answer = None if isinstance(entry.ending, Release) else entry.ending.answer
    return len(answer or b"")


def _row(entry: Entry) -> tuple[object, ...]:
    identity, hold = entry.identity, entry.hold
    key = (identity.scope, identity.upstream, identity.key_hash)
    held = (hold.fence, hold.owner, hold.fingerprint, hold.route, hold.claimed_at)
    match entry.ending:
        case Completion(status, retention, expired_mark, source, answer):
            return *key, *held, "complete", status, retention, expired_mark, source.value, None, None, None, answer
        case Doubt(status, since, answer, back_to):
            return *key, *held, "mark_unknown", status, None, None, None, since, *(back_to or (None, None)), answer
        case Release():
            return *key, *held, "release", *(None,) * 8


def _entry(row: tuple[Any, ...]) -> Entry:
    scope, upstream, key_hash, fence, owner, fingerprint, route, claimed_at, kind, *rest = row
    status, retention, expired_mark, source, since, back_fence, back_owner, answer = rest
    ending: Ending
    match kind:
        case "complete":
            ending = Completion(status, retention, expired_mark, Source(source), answer)
        case "mark_unknown":
            ending = Doubt(status, since, answer, None if back_fence is None else (back_fence, back_owner))
        case _:
            ending = Release()
    return Entry(Identity(scope, upstream, key_hash), Hold(fence, owner, fingerprint, route, claimed_at), ending)
