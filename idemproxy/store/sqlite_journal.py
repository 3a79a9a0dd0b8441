"""Journals in the SQLite file: the steps that workflows have begun, and what their agents keep of their own state.

A step is one row, put behind the others without reading them: the row number gives the order. The notes of a batch are written
by three statements, however many they are, for the reason that sqlite_rows gives.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from idemproxy.core.journal import Entry, Journal, Memory, Note, SaveResult, WorkflowIdentity, saved
from idemproxy.core.record import Identity
from idemproxy.store.sqlite_rows import holes, portions

_ASKED: Final = "WITH asked (w_scope, w_hash, until, scope, upstream, key_hash, route, kept, step, action)"
_WIDTH: Final = 10
# A cross join is carried out in the order in which it is written: so the steps of a batch keep their order.
_OF_ASKED: Final = "FROM asked CROSS JOIN workflow ON (workflow.scope, workflow.id_hash) = (w_scope, w_hash)"
_TO_WORKFLOW: Final = "ON CONFLICT (scope, id_hash) DO UPDATE SET forget_at = max(forget_at, excluded.forget_at)"
# WHERE true: without it, SQLite takes ON CONFLICT for a condition of the join.
_ADD_WORKFLOWS: Final = (
    f"INSERT INTO workflow (scope, id_hash, forget_at) SELECT w_scope, w_hash, until FROM asked WHERE true {_TO_WORKFLOW}"  # noqa: S608 -- our own names, here and below
)
_ADD_STEPS: Final = (
    "INSERT INTO step (workflow, scope, upstream, key_hash, route, kept, step, action, at) "
    f"SELECT workflow.number, asked.scope, upstream, key_hash, route, kept, step, action, ? {_OF_ASKED} WHERE true "
    "ON CONFLICT (workflow, scope, upstream, key_hash) DO UPDATE SET kept = max(kept, excluded.kept)"
)
_FORGET: Final = f"DELETE FROM workflow WHERE forget_at <= ? AND number IN (SELECT workflow.number {_OF_ASKED})"  # noqa: S608

_SELECT_STEPS: Final = (
    "SELECT scope, upstream, key_hash, route, kept, step, action, at FROM step WHERE workflow = ? ORDER BY number"
)
_SELECT_WORKFLOW: Final = "SELECT number, forget_at FROM workflow WHERE (scope, id_hash) = (?, ?) AND forget_at > ?"
_SELECT_MEMORY: Final = "SELECT content, version, before FROM agent_memory WHERE workflow = ?"
_FORGET_ONE: Final = "DELETE FROM workflow WHERE (scope, id_hash) = (?, ?) AND forget_at <= ?"
_KEEP: Final = f"INSERT INTO workflow (scope, id_hash, forget_at) VALUES (?, ?, ?) {_TO_WORKFLOW}"  # noqa: S608
_REMEMBER: Final = (
    "INSERT INTO agent_memory (workflow, version, before, content) "
    "SELECT number, ?, ?, ? FROM workflow WHERE (scope, id_hash) = (?, ?) ON CONFLICT (workflow) "
    "DO UPDATE SET version = excluded.version, before = excluded.before, content = excluded.content"
)
_SWEEP_STEPS: Final = (
    "DELETE FROM step WHERE number IN "
    "(SELECT step.number FROM workflow CROSS JOIN step ON step.workflow = workflow.number WHERE forget_at <= ? LIMIT ?)"
)
_SWEEP: Final = (
    "DELETE FROM workflow WHERE number IN (SELECT number FROM workflow WHERE forget_at <= ? "
    "AND NOT EXISTS (SELECT 1 FROM step WHERE step.workflow = workflow.number) LIMIT ?)"
)


class Noted(NamedTuple):
    """A note for one workflow."""

    workflow: WorkflowIdentity
    note: Note


def note(connection: sqlite3.Connection, notes: Sequence[Noted], now: int) -> Sequence[None]:
    """Keep many notes, in their order (core.journal.noted)."""
    for some in portions(notes):
        asked = f"{_ASKED} AS ({holes(len(some), _WIDTH)})"
        values = [value for each in some for value in _values(each, now)]
        connection.execute(f"{asked} {_FORGET}", (*values, now))
        connection.execute(f"{asked} {_ADD_WORKFLOWS}", values)
        connection.execute(f"{asked} {_ADD_STEPS}", (*values, now))
    return [None] * len(notes)


def journal(connection: sqlite3.Connection, workflow: WorkflowIdentity, now: int) -> tuple[Journal, int] | None:
    """A whole journal, and `now`."""
    number, found = _bare(connection, workflow, now)
    if found is None:
        return None
    rows = connection.execute(_SELECT_STEPS, (number,)).fetchall()
    return replace(found, entries=tuple([_entry(row) for row in rows])), now


def save(
    connection: sqlite3.Connection, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int, now: int
) -> SaveResult:
    """Keep an agent's memory (core.journal.saved)."""
    key = (workflow.scope, workflow.id_hash)
    _, before = _bare(connection, workflow, now)
    after, result = saved(before, content, expected, kept, now)
    if after is not None and after is not before and after.memory is not None:
        connection.execute(_FORGET_ONE, (*key, now))
        connection.execute(_KEEP, (*key, after.forget_at))
        connection.execute(_REMEMBER, (after.memory.version, after.memory.before, after.memory.content, *key))
    return result


def sweep(connection: sqlite3.Connection, now: int, limit: int) -> int:
    """Remove journals that are kept no longer, at most `limit` steps and as many workflows; the greater number of the two."""
    steps = connection.execute(_SWEEP_STEPS, (now, limit)).rowcount
    return max(steps, connection.execute(_SWEEP, (now, limit)).rowcount)


def _bare(connection: sqlite3.Connection, workflow: WorkflowIdentity, now: int) -> tuple[int, Journal | None]:
    """A journal without its steps, and its number in the file; None where there is none."""
    row = connection.execute(_SELECT_WORKFLOW, (workflow.scope, workflow.id_hash, now)).fetchone()
    if row is None:
        return 0, None
    number, forget_at = row
    memory = connection.execute(_SELECT_MEMORY, (number,)).fetchone()
    return number, Journal(memory=None if memory is None else Memory(*memory), forget_at=forget_at)


def _entry(row: tuple[Any, ...]) -> Entry:
    scope, upstream, key_hash, *rest, at = row
    return Entry(Note(Identity(scope, upstream, key_hash), *rest), at)


def _values(noted: Noted, now: int) -> tuple[object, ...]:
    workflow, told = noted
    record = told.record
    return (
        *(workflow.scope, workflow.id_hash, now + told.kept),
        *(record.scope, record.upstream, record.key_hash),
        *(told.route, told.kept, told.step, told.action),
    )
