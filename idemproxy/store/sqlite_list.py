"""Pages of records from the SQLite file: the newest first, by row number, a bounded number of rows for each page."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from idemproxy.core.record import Identity, Phase, Record, Source
from idemproxy.core.transition import aged
from idemproxy.store.base import Page

SCAN_ROWS: Final = 512
"""At most so many rows are looked at for one page, since the writer's thread looks at them."""

LAST_ROW: Final = 2**63 - 1

_SCAN: Final = """
    SELECT rowid, scope, upstream, key_hash, phase, fingerprint, fence, owner, route, claimed_at, lease_until,
           settled_at, expires_at, forget_at, status, source
    FROM record WHERE rowid < ? ORDER BY rowid DESC LIMIT ?
"""  # without the answers, whose pages are then not read


def page(connection: sqlite3.Connection, phase: Phase | None, limit: int, before: int | None, now: int) -> Page:
    """Records of the rows below number `before`, or from the newest on, of one phase or of all, at most `limit`, as of `now`.

    Rows keep their numbers, and the compaction of the file (VACUUM) only lowers them: nothing is passed over by going down.
    """
    count = min(limit, SCAN_ROWS) if phase is None else SCAN_ROWS
    rows = _scan(connection, LAST_ROW if before is None else before, count)
    found: list[tuple[Identity, Record]] = []
    for place, identity, stored in rows:
        record = aged(stored, now)
        if record is not None and phase in (None, record.phase):
            found.append((identity, record))
            if len(found) == limit:
                return Page(found, str(place))
    return Page(found, str(rows[-1][0]) if len(rows) == count else "")


def _scan(connection: sqlite3.Connection, before: int, count: int) -> Sequence[tuple[int, Identity, Record]]:
    """The rows below `before`, from the highest down, at most `count`."""
    return [_opened(row) for row in connection.execute(_SCAN, (before, count)).fetchall()]


def _opened(row: tuple[Any, ...]) -> tuple[int, Identity, Record]:
    place, scope, upstream, key_hash, phase, *rest, source = row
    fields: list[Any] = [Phase(phase), *rest, Source(source)]
    return place, Identity(scope, upstream, key_hash), Record(*fields)
