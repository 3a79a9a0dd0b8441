"""What the contract suite needs of a store: more openings of the same data, a clock that obeys, and a loss behind its back."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Protocol

from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.store.base import Store
from idemproxy.store.base_host import HostClock
from idemproxy.store.compressed import CompressedStore
from idemproxy.store.memory import MemoryStore
from idemproxy.store.sqlite import SqliteStore


class Harness(Protocol):
    """One set of data, empty at first, and what can happen to it."""

    name: str

    async def open(self) -> Store:
        """Another store on the same data, started, as another process would have it."""

    async def advance(self, seconds: float) -> None:
        """Let time pass on the store's clock."""

    async def lose(self, identity: Identity) -> None:
        """Remove the record behind everyone's back."""

    async def close(self) -> None:
        """Close every store that was opened."""


class Clock:
    """Microseconds that pass when they are told to, and by one for each look, so that no two moments are the same."""

    def __init__(self) -> None:
        self._looks = itertools.count(1_700_000_000 * MICROSECONDS)
        self._passed = 0

    def __call__(self) -> int:
        """The time now."""
        return next(self._looks) + self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._passed += round(seconds * MICROSECONDS)


class MemoryHarness:
    """A memory store is its data, so every opening of it is the same object."""

    name = "memory"

    def __init__(self) -> None:
        self._clock = Clock()
        self._store = MemoryStore(self._clock)

    async def open(self) -> MemoryStore:
        """As Harness.open."""
        await self._store.start()
        return self._store

    async def advance(self, seconds: float) -> None:
        """As Harness.advance."""
        self._clock.advance(seconds)

    async def lose(self, identity: Identity) -> None:
        """As Harness.lose."""
        self._store.lose(identity)

    async def close(self) -> None:
        """As Harness.close."""
        await self._store.close()


class CompressedHarness:
    """A memory store whose answers are compressed."""

    name = "memory"

    def __init__(self) -> None:
        self._inner = MemoryHarness()

    async def open(self) -> CompressedStore:
        """As Harness.open."""
        return CompressedStore(await self._inner.open())

    async def advance(self, seconds: float) -> None:
        """As Harness.advance."""
        await self._inner.advance(seconds)

    async def lose(self, identity: Identity) -> None:
        """As Harness.lose."""
        await self._inner.lose(identity)

    async def close(self) -> None:
        """As Harness.close."""
        await self._inner.close()


class SqliteHarness:
    """Stores on one file in `directory`, each with a writer and a connection of its own."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "records.db"
        self.clock = Clock()
        self._stores: list[SqliteStore] = []

    async def open(self, busy_timeout: float = 5.0) -> SqliteStore:
        """As Harness.open."""
        store = SqliteStore(self.path, clock=HostClock(self.clock), busy_timeout=busy_timeout)
        self._stores.append(store)
        await store.start()
        return store

    async def advance(self, seconds: float) -> None:
        """As Harness.advance."""
        self.clock.advance(seconds)

    def connect(self) -> sqlite3.Connection:
        """A connection of one's own, for what an operator or an accident does."""
        return sqlite3.connect(self.path)

    async def lose(self, identity: Identity) -> None:
        """As Harness.lose."""
        with closing(self.connect()) as connection, connection:
            key = (identity.scope, identity.upstream, identity.key_hash)
            connection.execute("DELETE FROM record WHERE (scope, upstream, key_hash) = (?, ?, ?)", key)

    async def close(self) -> None:
        """As Harness.close."""
        for store in self._stores:
            await store.close()
