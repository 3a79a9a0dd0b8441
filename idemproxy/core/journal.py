"""The journal: which steps a workflow has begun, in their order, and what its agent keeps of its own state.

A step is noted once its operation is claimed, and before its request is forwarded: what was refused, replayed or lost was no step
of the workflow. How it ended is told by its record, which alone knows. The functions below are the journal's atomic steps, as
core.transition has those of a record: the memory and SQLite stores run them inside their transactions, and the Redis store does
the same in Lua.

Times are whole microseconds since the epoch on the store's clock; durations are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from idemproxy.core.record import Identity, Phase, Record

ABSENT: Final = 0
"""The version of a memory that was never saved."""

_FIRST_ERROR: Final = 400


@dataclass(frozen=True, slots=True)
class WorkflowIdentity:
    """What a journal is found by: hashes of whose workflow it is (or `shared`), and of its id."""

    scope: str
    id_hash: str

    def __str__(self) -> str:
        """One line without white space, unique for the two parts, since neither may hold a slash."""
        return f"{self.scope}/{self.id_hash}"


@dataclass(frozen=True, slots=True)
class Note:
    """That a step is about to be forwarded. `record` is where its outcome will be found.

    `step` and `action` are the agent's own words, None where it gave none. `kept`: for how long after its completion the record
    still tells that the step happened.
    """

    record: Identity
    route: str
    kept: int
    step: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A note, and when it was first taken."""

    note: Note
    at: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What an agent keeps: the JSON text as it was sent. `version` grows with every save, and is never given again.

    `before` is the version that it took the place of, ABSENT for the first.
    """

    content: bytes = field(repr=False)
    version: int
    before: int


@dataclass(frozen=True, slots=True)
class Journal:
    """One workflow as the store knows it: each step once, in the order in which they were first begun."""

    entries: Sequence[Entry] = ()
    memory: Memory | None = None
    forget_at: int = 0
    """When all of it goes, unless something is added before."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The memory is kept, under this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was saved: the memory has another version than was expected, ABSENT where there is none."""

    version: int


SaveResult: TypeAlias = Saved | Conflict


def aged(journal: Journal | None, now: int) -> Journal | None:
    """The journal as it stands at `now`."""
    return None if journal is None or journal.forget_at <= now else journal


def noted(journal: Journal | None, note: Note, now: int) -> Journal:
    """With the note as its last entry; a step that is there already stays as it is, and is `kept` for the longer of the two."""
    journal = aged(journal, now) or Journal()
    entries = list(journal.entries)
    for place, entry in enumerate(entries):
        if entry.note.record == note.record:
            entries[place] = replace(entry, note=replace(entry.note, kept=max(entry.note.kept, note.kept)))
            break
    else:
        entries.append(Entry(note, now))
    return replace(journal, entries=tuple(entries), forget_at=max(journal.forget_at, now + note.kept))


def saved(
    journal: Journal | None, content: bytes, expected: int | None, kept: int, now: int
) -> tuple[Journal | None, SaveResult]:
    """With another memory, if its version is the `expected` one; None takes any. `kept`: for how long from now.

    A save that is asked again, since its answer was lost, is the same save: the content is there, and took the place of what was
    expected. The versions are the store's time, so that none is given again after the journal has gone.
    """
    journal = aged(journal, now) or Journal()
    memory = journal.memory
    version = ABSENT if memory is None else memory.version
    if expected is not None and expected != version:
        if memory is not None and memory.content == content and memory.before == expected:
            return journal, Saved(version)
        return journal if journal.forget_at else None, Conflict(version)
    new = Memory(content, max(now, version + 1), version)
    return replace(journal, memory=new, forget_at=max(journal.forget_at, now + kept)), Saved(new.version)


class StepStatus(StrEnum):
    """How far a step has come."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    UNKNOWN = "UNKNOWN"
    FAILED = "FAILED"


def step_status(entry: Entry, record: Record | None, now: int) -> StepStatus:
    """How far a step has come, by its record as it stands at `now`.

    Without a record it was not carried out: it never left, or the upstream refused it, and the key was released. But once a
    record may have gone by itself, its absence proves nothing any more.
    """
    match record:
        case None:
            return StepStatus.FAILED if now < entry.at + entry.note.kept else StepStatus.UNKNOWN
        case Record(phase=Phase.IN_FLIGHT):
            return StepStatus.IN_PROGRESS
        case Record(phase=Phase.UNKNOWN):
            return StepStatus.UNKNOWN
        case Record(status=int(status)) if status >= _FIRST_ERROR:
            return StepStatus.FAILED
        case _:
            return StepStatus.COMPLETED


def workflow_status(steps: Sequence[StepStatus]) -> StepStatus | None:
    """How far a workflow has come, None before its first step.

    A step whose outcome is unknown, or that is under way, comes first, whichever it is; else the last one counts.
    `COMPLETED` says that of all steps so far; whether there are more, only the agent knows.
    """
    for pressing in (StepStatus.UNKNOWN, StepStatus.IN_PROGRESS):
        if pressing in steps:
            return pressing
    return steps[-1] if steps else None
