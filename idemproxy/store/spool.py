"""The spool: what a proxy could not tell the store, kept on its own disk until the store takes it.

One directory serves the proxies of one host. Each takes a slot of its own in it, a SQLite file that it holds locked for as long
as it lives, and with the slot an identity, the instance: whoever gets a slot of the same store later is its heir, and knows that
the one before is dead. What lies in the slot is written to the store by the heir; the claims that carry the instance's name and
are still in flight are its orphans.

The lock proves a death only where it lies: a copy of the directory (of a volume, a disk, an image) has locks of its own, and the
first holder may be alive beside it. So the name is bound to the place of the lock, which is its device and inode, in this boot of
this machine. Elsewhere the slot gets a new name. What it keeps is written all the same: each ending carries its hold, so that a
second copy of it does no harm. But orphans are then not known as such, nor are they after a restart of the machine, or when the
directory was restored from a backup: they become unknown when their leases end. (A virtual machine that is copied while it runs
copies its boot as well: the two are not told apart.)
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from idemproxy.core.record import Identity, Source
from idemproxy.core.transition import Completion, Doubt, Ending, Hold, Release
from idemproxy.store.base import StoreError
from idemproxy.store.base_host import boot_id

Result = TypeVar("Result")

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_SLOTS: Final = 256

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS slot (instance TEXT NOT NULL, place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL, upstream TEXT NOT NULL, key_hash TEXT NOT NULL,
    fence INTEGER NOT NULL, owner TEXT NOT NULL, fingerprint TEXT NOT NULL, route TEXT NOT NULL, claimed_at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status INTEGER, retention INTEGER, expired_mark INTEGER, source TEXT, since INTEGER, answer BLOB
);
"""


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

    def __init__(self, path: Path, lock: int, connection: sqlite3.Connection) -> None:
        self.path = path
        self._lock = lock
        self._connection = connection
        self._turn = threading.Lock()
        self._closed = False
        self.instance = _instance(connection, _place(lock))
        self.entries: int
        self.bytes: int
        self.entries, self.bytes = connection.execute("SELECT count(*), coalesce(sum(length(answer)), 0) FROM entry").fetchone()

    @classmethod
    def open(cls, directory: Path, store: str) -> Spool:
        """The first slot in `directory` for the store of that name that no living process holds. Raises StoreError.

        `store` tells the stores of one host apart: what one did not take must never be written to another.
        """
        name = hashlib.sha256(store.encode()).hexdigest()[:12]
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in range(_MAX_SLOTS):
                path = directory / f"{name}-{number}.db"
                lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                return cls(path, lock, _connect(path))
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"spool directory {directory}: {error}; choose one that can be written, on a disk that outlives the process"
            ) from error
        raise StoreError(f"spool directory {directory}: all {_MAX_SLOTS} slots are held by living processes")

    @property
    def is_full(self) -> bool:
        """Whether the next settlement would be refused."""
        return self.entries >= MAX_ENTRIES or self.bytes >= MAX_BYTES

    async def put(self, entry: Entry) -> None:
        """Keep a settlement, durably. Raises StoreError."""
        if self.is_full:
            raise SpoolFullError(f"spool {self.path}: full, with {self.entries} settlements of {self.bytes} bytes")
        await self._run(lambda: self._insert(entry))
        self.entries += 1
        self.bytes += _size(entry)

    async def after(self, number: int, limit: int) -> list[tuple[int, Entry]]:
        """The settlements above `number`, at most `limit`, in the order in which they came, each with its own number."""
        found = "SELECT * FROM entry WHERE id > ? ORDER BY id LIMIT ?"
        rows = await self._run(lambda: self._connection.execute(found, (number, limit)).fetchall())
        return [(row[0], _entry(row)) for row in rows]

    async def remove(self, number: int, entry: Entry) -> None:
        """Forget a settlement that the store has taken."""
        await self._run(lambda: self._delete(number))
        self.entries -= 1
        self.bytes -= _size(entry)

    async def close(self) -> None:
        """Let go of the slot; what lies in it waits for the next holder. From now on every other call raises StoreError."""
        with suppress(ClosedSpoolError):
            await self._run(self._let_go)

    async def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.to_thread(self._in_turn, work)
        except sqlite3.Error as error:
            raise StoreError(f"spool {self.path}: {error}") from error

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        with self._turn:  # also when a caller was cancelled, and its thread is still at work
            if self._closed:
                raise ClosedSpoolError(f"spool {self.path}: it is closed, since the proxy ends")
            return work()

    def _let_go(self) -> None:
        self._closed = True
        self._connection.close()
        os.close(self._lock)  # last: another process may now have the slot

    def _insert(self, entry: Entry) -> None:
        with self._connection:
            self._connection.execute(f"INSERT INTO entry VALUES ({', '.join('?' * 16)})", _row(entry))  # noqa: S608 - marks only

    def _delete(self, number: int) -> None:
        with self._connection:
            self._connection.execute("DELETE FROM entry WHERE id = ?", (number,))


def _connect(path: Path) -> sqlite3.Connection:
    with suppress(FileExistsError), closing(path.open("x")):
        path.chmod(0o600)
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    return connection


def _place(lock: int) -> str:
    """Where a lock lies: no two that processes hold at the same time have the same place."""
    found = os.fstat(lock)
    return f"{found.st_dev}:{found.st_ino}:{boot_id()}"


def _instance(connection: sqlite3.Connection, place: str) -> str:
    """The name that goes with a slot at this place: a new one, if what is kept comes from another place, or nothing is."""
    kept = connection.execute("SELECT instance FROM slot WHERE place = ?", (place,)).fetchone()
    if kept is not None:
        return str(kept[0])
    drawn = secrets.token_hex(8)
    with connection:
        connection.execute("DELETE FROM slot")
        connection.execute("INSERT INTO slot VALUES (?, ?)", (drawn, place))
    return drawn


def _size(entry: Entry) -> int:
    answer = None if isinstance(entry.ending, Release) else entry.ending.answer
    return len(answer or b"")


def _row(entry: Entry) -> tuple[object, ...]:
    identity, hold = entry.identity, entry.hold
    key = (None, identity.scope, identity.upstream, identity.key_hash)
    held = (hold.fence, hold.owner, hold.fingerprint, hold.route, hold.claimed_at)
    match entry.ending:
        case Completion(status, retention, expired_mark, source, answer):
            return *key, *held, "complete", status, retention, expired_mark, source.value, None, answer
        case Doubt(status, since, answer):
            return *key, *held, "mark_unknown", status, None, None, None, since, answer
        case Release():
            return *key, *held, "release", None, None, None, None, None, None


def _entry(row: tuple[Any, ...]) -> Entry:
    scope, upstream, key_hash, fence, owner, fingerprint, route, claimed_at, kind, *rest = row[1:]
    status, retention, expired_mark, source, since, answer = rest
    ending: Ending
    match kind:
        case "complete":
            ending = Completion(status, retention, expired_mark, Source(source), answer)
        case "mark_unknown":
            ending = Doubt(status, since, answer)
        case _:
            ending = Release()
    return Entry(Identity(scope, upstream, key_hash), Hold(fence, owner, fingerprint, route, claimed_at), ending)
