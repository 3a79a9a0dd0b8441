"""The audit trail in the SQLite file: what persons did to a record, kept for a time after the last act, also when it has gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from idemproxy.core.record import Identity, Phase
from idemproxy.core.transition import Act, Verb
from idemproxy.store.base import AUDIT_KEPT

_OF: Final = "(scope, upstream, key_hash) = (?, ?, ?)"
_SELECT: Final = f"SELECT verb, who, why, fence, from_phase, at FROM audit WHERE {_OF} AND kept_until > ? ORDER BY rowid"  # noqa: S608 -- our own names
_INSERT: Final = "INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PROLONG: Final = f"UPDATE audit SET kept_until = ? WHERE {_OF}"  # noqa: S608 -- our own names
_FORGET: Final = f"DELETE FROM audit WHERE {_OF} AND kept_until <= ?"  # noqa: S608 -- our own names
_SWEEP: Final = "DELETE FROM audit WHERE rowid IN (SELECT rowid FROM audit WHERE kept_until <= ? ORDER BY kept_until LIMIT ?)"


def note(connection: sqlite3.Connection, identity: Identity, act: Act) -> None:
    """Add an act to the trail, which is kept from now on."""
    key, kept_until = (identity.scope, identity.upstream, identity.key_hash), act.at + AUDIT_KEPT
    connection.execute(_FORGET, (*key, act.at))  # what was kept for its time is not prolonged, though no sweep has come by
    connection.execute(_INSERT, (*key, act.verb.value, act.who, act.why, act.fence, act.from_phase.value, act.at, kept_until))
    connection.execute(_PROLONG, (kept_until, *key))


def trail(connection: sqlite3.Connection, identity: Identity, now: int) -> Sequence[Act]:
    """The acts on one record, in their order."""
    rows = connection.execute(_SELECT, (identity.scope, identity.upstream, identity.key_hash, now))
    return [Act(Verb(verb), who, why, fence, Phase(from_phase), at) for verb, who, why, fence, from_phase, at in rows.fetchall()]


def sweep(connection: sqlite3.Connection, now: int, limit: int) -> int:
    """Remove entries, at most `limit`, that are kept no longer; how many there were."""
    return connection.execute(_SWEEP, (now, limit)).rowcount
