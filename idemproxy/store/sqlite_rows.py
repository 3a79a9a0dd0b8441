"""Records as rows: many are loaded, saved or removed by one statement, so that a batch costs few calls into SQLite.

Each call into SQLite gives up the interpreter's lock and has to win it back from a busy event loop; one call for each row
would make a batch as slow as the loop is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from idemproxy.core.record import Identity, Phase, Record, Source

Item = TypeVar("Item")


class Row(NamedTuple):
    """What the file holds for one identity: the record, and who in other processes waits for its settlement."""

    record: Record
    watchers: tuple[int, ...] = ()


_KEY: Final = ("scope", "upstream", "key_hash")
_REST: Final = (  # the watchers, then the fields of Record in their order
    "watchers",
    "phase",
    "fingerprint",
    "fence",
    "owner",
    "route",
    "claimed_at",
    "lease_until",
    "settled_at",
    "expires_at",
    "forget_at",
    "status",
    "source",
    "answer",
)
_PHASES: Final = {phase.value: phase for phase in Phase}
_SOURCES: Final = {source.value: source for source in Source}
_COLUMNS: Final = ", ".join(_KEY + _REST)
# A cross join is carried out in the order in which it is written: each identity asked for is looked up in the index.
_MATCHING: Final = "FROM asked CROSS JOIN record ON (scope, upstream, key_hash) = (a, b, c)"
_SELECT_DUE: Final = (
    f"SELECT {', '.join((_KEY + _REST)[:-1])}, NULL "  # noqa: S608 -- our own names
    "FROM record WHERE due_at <= ? ORDER BY due_at LIMIT ?"
)
_SIZES: Final = (64, 32, 16, 8, 4, 2, 1)  # few distinct statements, so that each is prepared once for a connection


def load(connection: sqlite3.Connection, identities: Sequence[Identity]) -> dict[Identity, Row]:
    """The rows of those identities that have one."""
    found: dict[Identity, Row] = {}
    for at in range(0, len(identities), _SIZES[0]):
        some = identities[at : at + _SIZES[0]]
        size = min(size for size in _SIZES if size >= len(some))
        spare = [None] * ((size - len(some)) * len(_KEY))  # nothing is like NULL: so there are few statements, and one is run
        rows = connection.execute(_select(size), [*chain.from_iterable(some), *spare])
        found.update((some[place], _row(row)) for place, *row in rows)
    return found


def load_due(connection: sqlite3.Connection, now: int, limit: int) -> dict[Identity, Row]:
    """The rows, at most `limit`, that time alone changes by `now`; without their answers, which go."""
    return {Identity(*row[:3]): _row(row[3:]) for row in connection.execute(_SELECT_DUE, (now, limit))}


def save(connection: sqlite3.Connection, changed: Mapping[Identity, Row | None]) -> None:
    """Write what each identity now has; None removes its row."""
    rows = [_values(identity, row) for identity, row in changed.items() if row is not None]
    for some in portions(rows):
        connection.execute(_upsert(len(some)), list(chain.from_iterable(some)))
    for gone in portions([identity for identity, row in changed.items() if row is None]):
        connection.execute(_delete(len(gone)), list(chain.from_iterable(gone)))


def portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items, in parts of few different lengths."""
    at = 0
    for size in _SIZES:
        while len(items) - at >= size:
            yield items[at : at + size]
            at += size


@cache
def _select(count: int) -> str:
    return f"{_asked(count)} SELECT place, {', '.join(_REST)} {_MATCHING}"


@cache
def _delete(count: int) -> str:
    return f"{_asked(count)} DELETE FROM record WHERE rowid IN (SELECT record.rowid {_MATCHING})"  # noqa: S608 -- our own names


@cache
def _upsert(count: int) -> str:
    changes = ", ".join(f"{column} = excluded.{column}" for column in _REST)
    return (
        f"INSERT INTO record ({_COLUMNS}) {holes(count, len(_KEY + _REST))} "
        f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {changes}"
    )


def _asked(count: int) -> str:
    rows = ", ".join([f"({place}, ?, ?, ?)" for place in range(count)])
    return f"WITH asked (place, a, b, c) AS (VALUES {rows})"


def holes(count: int, width: int) -> str:
    """Rows of parameters, as a statement takes them."""
    row = f"({', '.join('?' * width)})"
    return f"VALUES {', '.join([row] * count)}"


def _row(values: Sequence[Any]) -> Row:
    watchers, phase, *rest, source, answer = values
    fields: list[Any] = [_PHASES[phase], *rest, _SOURCES[source], answer]
    return Row(Record(*fields), tuple(map(int, watchers.split())) if watchers else ())


def _values(identity: Identity, row: Row) -> tuple[object, ...]:
    record = row.record
    return (
        *identity,
        " ".join(map(str, row.watchers)) if row.watchers else "",
        record.phase.value,
        record.fingerprint,
        record.fence,
        record.owner,
        record.route,
        record.claimed_at,
        record.lease_until,
        record.settled_at,
        record.expires_at,
        record.forget_at,
        record.status,
        record.source.value,
        record.answer,
    )
