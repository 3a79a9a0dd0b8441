"""The clock of the SQLite file: one for all processes that share it, which no step of the wall clock moves.

Leases, fences and retention are told by it. On the wall clock, a step forward would make live holders look dead, and a step
back would keep dead ones alive. So the time is that since the boot, plus an offset which the file keeps: whoever opens the file
first in a boot takes it from the wall clock, and everybody else in that boot uses it. A wall clock that is set later is followed
at the next boot, and forward only: no boot begins before the times that the file holds.

Where the system has no name for its boots (outside Linux), the time is that of the wall clock, whatever happens to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final, NamedTuple

from idemproxy.core.record import MICROSECONDS
from idemproxy.store.base_host import HostClock

NOTE_EVERY: Final = MICROSECONDS
"""How far the times in the file may be ahead of the latest that was noted: a note for each commit would cost each a page."""

_SELECT: Final = "SELECT boot, offset, latest FROM clock"
_INSERT: Final = "INSERT INTO clock VALUES (?, ?, ?)"
_NOTE: Final = "UPDATE clock SET latest = max(latest, ?)"


class Kept(NamedTuple):
    """What the file keeps: for which boot, what to add to the time since then, and about the latest time that it has seen."""

    boot: str
    offset: int
    latest: int


def agreed(kept: Kept | None, boot: str, wall: int, elapsed: int) -> Kept:
    """What the processes of `boot` go by, given what the file has kept so far, the wall clock, and the time since the boot."""
    if kept is not None and kept.boot == boot:
        return kept
    begin = wall if kept is None else max(wall, kept.latest + NOTE_EVERY)  # else a fence could be given twice
    return Kept(boot, begin - elapsed, begin)


def file_clock(connection: sqlite3.Connection, host: HostClock) -> Callable[[], int]:
    """The clock of an open file, as this host has to read it. Writes to the file only when it is the first in this boot."""
    if not host.boot:
        return host.wall
    kept = _kept(connection)
    if kept is None or kept.boot != host.boot:
        connection.execute("BEGIN IMMEDIATE")
        kept = agreed(_kept(connection), host.boot, host.wall(), host.elapsed())  # another process may have been first
        connection.execute("DELETE FROM clock")
        connection.execute(_INSERT, kept)
        connection.execute("COMMIT")
    offset, elapsed = kept.offset, host.elapsed
    return lambda: offset + elapsed()


def note(connection: sqlite3.Connection, now: int) -> None:
    """Keep, in the transaction that is open, how far the clock has come."""
    connection.execute(_NOTE, (now,))


def _kept(connection: sqlite3.Connection) -> Kept | None:
    row = connection.execute(_SELECT).fetchone()
    return None if row is None else Kept(*row)
