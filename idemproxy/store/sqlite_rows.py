"""Records as rows: many are loaded, saved or removed by one statement, so that a batch costs few calls into SQLite.

Each call into SQLite gives up the interpreter's lock and has to win it back from a busy event loop; one call for each row
would make a batch as slow as the loop is busy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
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
    for some in portions(identities):
        for row in connection.execute(_select(len(some)), [part for identity in some for part in _key(identity)]):
            found[Identity(*row[:3])] = _row(row)
    return found


def load_due(connection: sqlite3.Connection, now: int, limit: int) -> dict[Identity, Row]:
    """The rows, at most `limit`, that time alone changes by `now`; without their answers, which go."""
    return {Identity(*row[:3]): _row(row) for row in connection.execute(_SELECT_DUE, (now, limit))}


def save(connection: sqlite3.Connection, changed: Mapping[Identity, Row | None]) -> None:
    """Write what each identity now has; None removes its row."""
    rows = [_values(identity, row) for identity, row in changed.items() if row is not None]
    for some in portions(rows):
        connection.execute(_upsert(len(some)), [value for values in some for value in values])
    for gone in portions([_key(identity) for identity, row in changed.items() if row is None]):
        connection.execute(_delete(len(gone)), [part for key in gone for part in key])


def portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """The items, in parts of few different lengths."""
    at = 0
    for size in _SIZES:
        while len(items) - at >= size:
            yield items[at : at + size]
            at += size


@cache
def _select(count: int) -> str:
    return f"{_asked(count)} SELECT {_COLUMNS} {_MATCHING}"


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
    return f"WITH asked (a, b, c) AS ({holes(count, len(_KEY))})"


def holes(count: int, width: int) -> str:
    """Rows of parameters, as a statement takes them."""
    row = f"({', '.join('?' * width)})"
    return f"VALUES {', '.join([row] * count)}"


def _key(identity: Identity) -> tuple[str, str, str]:
    return identity.scope, identity.upstream, identity.key_hash


def _row(values: tuple[Any, ...]) -> Row:
    _, _, _, watchers, phase, *rest, source, answer = values
    fields: list[Any] = [_PHASES[phase], *rest, _SOURCES[source], answer]
    return Row(Record(*fields), tuple(map(int, watchers.split())))


def _values(identity: Identity, row: Row) -> tuple[object, ...]:
    record = row.record
    return (
        identity.scope,
        identity.upstream,
        identity.key_hash,
        " ".join(map(str, row.watchers)),
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
