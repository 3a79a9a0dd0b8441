"""The one thread that writes: it takes all steps that wait, runs them in one transaction, and commits once.

So steps that arrive together share one flush to the disk, and a batch that changes nothing costs none. Each step is a
function of core.transition, applied to the rows as the steps before it left them. The thread owns the connection: it opens
it when there is work, drops it after a fault, and opens it again for the next batch, so that a fault which goes away needs
no restart.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from idemproxy.core.record import MICROSECONDS, Identity, Phase, Record
from idemproxy.core.transition import Act, Found, aged
from idemproxy.store import sqlite_audit, sqlite_clock, sqlite_journal
from idemproxy.store.base import StoreError
from idemproxy.store.base_acts import Deed
from idemproxy.store.base_host import HostClock
from idemproxy.store.sqlite_file import explained, open_file, primary_code
from idemproxy.store.sqlite_rows import Row, load, load_due, save

Result = TypeVar("Result")
Apply: TypeAlias = Callable[[Record | None, int], tuple[Record | None, Any]]
"""A transition with its arguments in it: (record, now) -> (record, result); the same record object means no change."""

SWEEP_EVERY: Final = 5 * MICROSECONDS
SWEEP_ROWS: Final = 256


class Step(NamedTuple):
    """A transition that someone waits for. `port`: tell it when a record found in flight is settled."""

    future: asyncio.Future[Any]
    identity: Identity
    apply: Apply
    port: int | None = None


class Query(NamedTuple):
    """What else someone wants of the file: `run` is given the connection and the time, after the steps of its batch."""

    future: asyncio.Future[Any]
    run: Callable[[sqlite3.Connection, int], Any]


class Joint(NamedTuple):
    """What many want at the same time: `run` is given all their items in one call, after the queries of its batch."""

    future: asyncio.Future[Any]
    run: Callable[[sqlite3.Connection, Sequence[Any], int], Sequence[Any]]
    item: Any


Work: TypeAlias = Step | Query | Joint


class Outcome(NamedTuple):
    """What became of a batch: (future, result, error) for each of it, and the settled records with the ports to tell."""

    results: list[tuple[asyncio.Future[Any], Any, Exception | None]]
    settled: list[tuple[Identity, Sequence[int]]]


class Writer:
    """A thread with a queue. `deliver` is called on the thread with each batch's outcome, after its commit.

    `clock`: the readings of this host; `busy_timeout` is in seconds. Results carry StoreError as it is: whether the fault heals
    is for the caller to see.
    """

    def __init__(self, path: Path, clock: HostClock, busy_timeout: float, deliver: Callable[[Outcome], None]) -> None:
        self._path = path
        self._host = clock
        self._now = clock.wall  # until the file is open, which has a clock of its own
        self._noted_at = 0
        self._busy_timeout = busy_timeout
        self._deliver = deliver
        self._queue: SimpleQueue[Sequence[Work] | None] = SimpleQueue()
        self._ending = False
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode that were opened last
        self._swept_at = 0
        self._more_to_sweep = False
        self._thread = threading.Thread(target=self._run, name="idemproxy-sqlite", daemon=True)

    def start(self) -> None:
        """Begin to take work."""
        self._thread.start()

    def submit(self, works: Sequence[Work]) -> None:
        """Queue works for the next batch."""
        self._queue.put(works)

    def stop(self) -> None:
        """Finish what is queued, close the file, and return when that is done."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            batch = self._waiting(timeout=0.05 if self._more_to_sweep else SWEEP_EVERY / MICROSECONDS)
            if batch:
                self._carry_out(batch)
            self._sweep()
        self._drop()

    def _waiting(self, timeout: float) -> list[Work]:
        """All work that is queued, after waiting up to `timeout` seconds for the first."""
        found: list[Work] = []
        with suppress(Empty):
            while not self._ending:
                works = self._queue.get(block=timeout > 0 and not found, timeout=timeout)
                if works is None:
                    self._ending = True
                else:
                    found += works
        return found

    def _carry_out(self, batch: list[Work], *, alone: bool = False) -> None:
        """Run and commit a batch, deliver what became of it; a fault of the file is everyone's, a fault of one its own."""
        try:
            with self._transaction(self._busy_timeout) as connection:
                if not alone:
                    batch += self._waiting(timeout=0)  # what came while we waited for the lock
                now, before = self._now(), connection.total_changes
                outcome = _transit(connection, batch, now)
                if connection.total_changes != before and now - self._noted_at >= sqlite_clock.NOTE_EVERY:
                    sqlite_clock.note(connection, now)
                    self._noted_at = now
        except Exception as error:  # noqa: BLE001 -- whatever it is, those who wait must hear of it
            self._noted_at = 0  # what was noted was rolled back
            if _is_of_file(error):
                batch += self._waiting(timeout=0)
            elif len(batch) > 1:
                for work in batch:
                    self._carry_out([work], alone=True)
                return
            self._deliver(_failed(batch, explained(error, self._path) if isinstance(error, sqlite3.Error) else error))
        else:
            self._deliver(outcome)

    def _sweep(self) -> None:
        """Now and then let some records age that nobody asks for: answers past their retention go, and then their marks."""
        if self._connection is None or not (self._more_to_sweep or abs(self._now() - self._swept_at) >= SWEEP_EVERY):
            return
        swept = 0
        # Whatever fails here, the thread goes on: the next batch meets a lasting fault again, and has someone to tell.
        with suppress(Exception), self._transaction(0) as connection:
            now = self._now()
            due = load_due(connection, now, SWEEP_ROWS)
            left = {identity: aged(row.record, now) for identity, row in due.items()}
            save(connection, {identity: None if record is None else Row(record) for identity, record in left.items()})
            others = (each(connection, now, SWEEP_ROWS) for each in (sqlite_audit.sweep, sqlite_journal.sweep))
            swept = max(len(due), *others)
        self._swept_at, self._more_to_sweep = self._now(), swept == SWEEP_ROWS

    @contextmanager
    def _transaction(self, patience: float) -> Iterator[sqlite3.Connection]:
        """A write transaction, committed at the end; `patience` is how many seconds to wait for other processes."""
        try:
            connection = self._patiently(self._opened, patience)
            self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"), patience)
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except (sqlite3.Error, StoreError) as error:
            if not (isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_BUSY):
                self._drop()
            raise

    def _patiently(self, action: Callable[[], Result], patience: float) -> Result:
        """Try again while another process holds the lock. SQLite's own waiting soon sleeps for 25 to 100 ms at a time."""
        deadline = time.monotonic() + patience
        pause = 0.0005
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.004)

    def _opened(self) -> sqlite3.Connection:
        """The connection, to the file that lies at the path now: what is written to a removed file is lost."""
        if self._connection is not None and self._file_at_path() != self._file:
            self._drop()
        if self._connection is None:
            connection = open_file(self._path, create=self._file is None)
            try:
                self._now, self._noted_at = sqlite_clock.file_clock(connection, self._host), 0
            except BaseException:
                connection.close()
                raise
            self._connection, self._file = connection, self._file_at_path()
        return self._connection

    def _file_at_path(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _transit(connection: sqlite3.Connection, batch: Sequence[Work], now: int) -> Outcome:
    """Apply the steps of a batch in their order, and write each row once, as the last of them left it."""
    steps = [work for work in batch if isinstance(work, Step)]
    before = load(connection, list({step.identity for step in steps}))
    rows: dict[Identity, Row | None] = dict(before)
    outcome = Outcome([], [])
    notes: list[tuple[Identity, Act]] = []
    for step in steps:
        row = rows.get(step.identity)
        try:
            record, result = step.apply(row and row.record, now)
        except Exception as error:  # noqa: BLE001 -- a fault of this step, whatever it is, and not of its neighbours
            outcome.results.append((step.future, None, error))
            continue
        outcome.results.append((step.future, result, None))
        if isinstance(result, Deed) and result.note is not None:
            notes.append((step.identity, result.note))
        watchers = row.watchers if row else ()
        if step.port and step.port not in watchers and isinstance(result, Found) and result.record.phase is Phase.IN_FLIGHT:
            rows[step.identity] = Row(result.record, (*watchers, step.port))
        elif record is not (row and row.record):
            in_flight = record is not None and record.phase is Phase.IN_FLIGHT
            rows[step.identity] = None if record is None else Row(record, watchers if in_flight else ())
            if not in_flight:
                outcome.settled.append((step.identity, watchers))
    save(connection, {identity: row for identity, row in rows.items() if row is not before.get(identity)})
    for identity, act in notes:
        sqlite_audit.note(connection, identity, act)
    if len(steps) < len(batch):
        outcome.results.extend((work.future, work.run(connection, now), None) for work in batch if isinstance(work, Query))
        outcome.results.extend(_jointly(connection, [work for work in batch if isinstance(work, Joint)], now))
    return outcome


def _jointly(
    connection: sqlite3.Connection, wanted: Sequence[Joint], now: int
) -> Iterator[tuple[asyncio.Future[Any], Any, None]]:
    """What many want at the same time, in one call for all of a kind."""
    together: dict[Any, list[Joint]] = {}
    for each in wanted:
        together.setdefault(each.run, []).append(each)
    for run, some in together.items():
        results = run(connection, [each.item for each in some], now)
        yield from ((each.future, result, None) for each, result in zip(some, results, strict=True))


def _is_of_file(error: Exception) -> bool:
    """Whether the whole batch met a fault; otherwise one step brought a value that SQLite cannot take."""
    return isinstance(error, (sqlite3.OperationalError, StoreError)) or type(error) is sqlite3.DatabaseError


def _failed(batch: Sequence[Work], error: Exception) -> Outcome:
    """Everyone gets an error object of their own: one that is raised in many tasks would collect all their tracebacks."""
    outcome = Outcome([], [])
    for work in batch:
        own = type(error)(*error.args)
        own.__cause__ = error.__cause__
        outcome.results.append((work.future, None, own))
    return outcome
