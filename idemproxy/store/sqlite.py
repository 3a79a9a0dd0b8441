"""The SQLite store: one file on a local disk, for one host and its worker processes.

This module is the face that the event loop sees. Behind it: sqlite_writer, the thread that carries steps out and commits them in
groups; sqlite_rows, records as rows; sqlite_list, pages of them; sqlite_audit, the trail of persons' acts; sqlite_journal, what
workflows have begun; sqlite_file, opening, schema and errors; sqlite_checks, what is looked at of the file and its disk;
sqlite_clock, the time that all processes on one file agree on; sqlite_wake, waking between processes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from idemproxy.core import transition
from idemproxy.core.journal import Journal, Note, SaveResult, WorkflowIdentity
from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store import base_acts, base_list, sqlite_audit, sqlite_checks, sqlite_journal, sqlite_list
from idemproxy.store.base import Page, StoreError, StoreUnavailableError, Wake
from idemproxy.store.base_finding import Finding
from idemproxy.store.base_host import HostClock
from idemproxy.store.sqlite_wake import ProcessWakes
from idemproxy.store.sqlite_writer import Joint, Outcome, Query, Step, Work, Writer

Result = TypeVar("Result")
Transition: TypeAlias = Callable[[Record | None, int], tuple[Record | None, Result]]

_TURNS: Final = 8
"""Of the loop, at most, for which the first of a batch waits for others."""


class SqliteStore:
    """Records in the SQLite file at `path`; used on one event loop.

    `clock`: what this host's clocks show, read on the writer's thread; the store's time is made of them as sqlite_clock says.
    `busy_timeout`: for how many seconds a batch waits for the lock of another process before its steps fail with
    StoreUnavailableError.
    """

    name: Final = "sqlite"

    def __init__(self, path: str | Path, *, clock: HostClock, busy_timeout: float = 5.0) -> None:
        self._path = Path(path)
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._writer: Writer | None = None
        self._queued: list[Work] = []
        self._wakes = ProcessWakes()

    @property
    def journals(self) -> SqliteStore:
        """As base.Store.journals: in the same file."""
        return self

    async def start(self) -> None:
        """As base.Store.start: makes the file and its schema. A full disk or a busy file is an outage, and no error here."""
        deliver = partial(_give_back, asyncio.get_running_loop(), self._deliver)
        self._writer = Writer(self._path, self._clock, self._busy_timeout, deliver)
        self._writer.start()
        try:
            await self.check()
        except StoreUnavailableError as error:
            fault = error.__cause__
            if isinstance(fault, StoreError):  # which does not heal
                await self.close()
                raise fault from fault.__cause__

    async def close(self) -> None:
        """As base.Store.close: what is queued is carried out first."""
        self._hand_over()
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.stop)
            self._wakes.close()

    async def check(self) -> None:
        """As base.Store.check, by a write and its commit: only then does a full disk tell."""
        await self._query(_touch)

    async def inspect(self) -> Sequence[Finding]:
        """As base.Store.inspect: the disk always, and the connection that writes where there is one."""
        place = await asyncio.to_thread(sqlite_checks.see_place, self._path)
        try:
            pragmas = await self._query(sqlite_checks.see_pragmas)
        except StoreUnavailableError:  # not open yet, or out of order, which `check` tells
            pragmas = None
        return sqlite_checks.look(place, pragmas)

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As base.Store.claim."""
        port = self._wakes.port() if watched else None
        return await self._step(identity, lambda record, now: transition.claim(record, ask, now), port)

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """As base.Store.renew: queued together, so that they share a commit."""
        return await asyncio.gather(*[self._renew(identity, hold, lease) for identity, hold in holds])

    async def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Settled:
        """As base.Store.complete."""
        return await self._step(identity, lambda record, now: transition.complete(record, hold, completion, now))

    async def release(self, identity: Identity, hold: Hold) -> Settled:
        """As base.Store.release."""
        return await self._step(identity, lambda record, _: transition.release(record, hold))

    async def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Settled:
        """As base.Store.mark_unknown."""
        return await self._step(identity, lambda record, now: transition.mark_unknown(record, hold, doubt, now))

    async def read(self, identity: Identity) -> Record | None:
        """As base.Store.read."""
        return await self._step(identity, lambda record, now: (record, transition.aged(record, now)))

    async def list(self, phase: Phase | None, limit: int, cursor: str) -> Page:
        """As base.Store.list: the newest first, by row number. Raises ValueError for a cursor that is none."""
        before, size = base_list.place(cursor, sqlite_list.LAST_ROW), base_list.size(limit)
        return await self._query(lambda connection, now: sqlite_list.page(connection, phase, size, before, now))

    async def resolve(self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str) -> Acted:
        """As base.Store.resolve."""
        deed = await self._step(identity, lambda record, now: base_acts.resolve(record, fence, resolution, who, why, now))
        return deed.acted

    async def forget(self, identity: Identity, fence: int, who: str, why: str) -> Acted:
        """As base.Store.forget."""
        deed = await self._step(identity, lambda record, now: base_acts.forget(record, fence, who, why, now))
        return deed.acted

    async def audit(self, identity: Identity) -> Sequence[Act]:
        """As base.Store.audit."""
        return await self._query(lambda connection, now: sqlite_audit.trail(connection, identity, now))

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As base.Store.watch."""
        return self._wakes.watch(identity)

    async def note(self, workflow: WorkflowIdentity, note: Note) -> None:
        """As base_journal.Journals.note: those that are asked at the same time share a commit, and its statements."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue(Joint(future, sqlite_journal.note, sqlite_journal.Noted(workflow, note)))
        await future

    async def journal(self, workflow: WorkflowIdentity) -> tuple[Journal, int] | None:
        """As base_journal.Journals.journal."""
        return await self._query(lambda connection, now: sqlite_journal.journal(connection, workflow, now))

    async def save(self, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int) -> SaveResult:
        """As base_journal.Journals.save."""
        return await self._query(lambda connection, now: sqlite_journal.save(connection, workflow, content, expected, kept, now))

    def _renew(self, identity: Identity, hold: Hold, lease: int) -> asyncio.Future[bool]:
        return self._step(identity, lambda record, now: transition.renew(record, hold, lease, now))

    def _step(self, identity: Identity, apply: Transition[Result], port: int | None = None) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue(Step(future, identity, apply, port))
        return future

    def _query(self, run: Callable[[sqlite3.Connection, int], Result]) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue(Query(future, run))
        return future

    def _queue(self, work: Work) -> None:
        """Have it in the next batch: what is wanted until a turn of the loop brings nothing more goes to the thread in one piece.

        A batch costs the processor as much as ten steps in it, and the loop has to be woken for each. Under load this makes them
        twice as large; without, it takes one more look at the sockets, which is microseconds.
        """
        if self._writer is None:
            raise StoreUnavailableError(f"sqlite store {self._path}: it is not open")
        if not self._queued:
            asyncio.get_running_loop().call_soon(self._hand_over_soon, 0, _TURNS)
        self._queued.append(work)

    def _hand_over_soon(self, before: int, turns: int) -> None:
        """Unless there is more than `before`: then wait, for so many turns at most, whether there comes more yet."""
        now = len(self._queued)
        if now > before and turns:
            asyncio.get_running_loop().call_soon(self._hand_over_soon, now, turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._queued and self._writer is not None:
            self._writer.submit(self._queued)
            self._queued = []

    def _deliver(self, outcome: Outcome) -> None:
        for future, result, error in outcome.results:
            if future.done():  # its caller was cancelled; the step was carried out all the same
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(_unconfirmed(error))
        for identity, ports in outcome.settled:
            self._wakes.settled(identity, ports)


def _unconfirmed(error: Exception) -> Exception:
    """Whatever keeps the store from confirming is, to a caller, the store being unavailable; its cause is a fault that stays."""
    if not isinstance(error, StoreError) or isinstance(error, StoreUnavailableError):
        return error
    unavailable = StoreUnavailableError(*error.args)
    unavailable.__cause__ = error
    return unavailable


def _touch(connection: sqlite3.Connection, _: int) -> None:
    """Write a page: the version is the same again, which a newer program may have raised."""
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    connection.execute(f"PRAGMA user_version = {version}")


def _give_back(loop: asyncio.AbstractEventLoop, deliver: Callable[[Outcome], None], outcome: Outcome) -> None:
    """On the writer's thread: give a batch's outcome to the event loop, in one call for all of it."""
    with suppress(RuntimeError):  # the loop was closed before the store: nobody waits any more
        loop.call_soon_threadsafe(deliver, outcome)
