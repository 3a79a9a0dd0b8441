"""The journals of the memory store: the pure steps over a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from idemproxy.core import journal
from idemproxy.core.journal import Journal, Note, SaveResult, WorkflowIdentity

Result = TypeVar("Result")


class MemoryJournals:
    """Journals in this object; `clock` gives microseconds since the epoch. No step awaits, so each happens at once."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._journals: dict[WorkflowIdentity, Journal] = {}

    async def note(self, workflow: WorkflowIdentity, note: Note) -> None:
        """As base_journal.Journals.note."""
        self._put(workflow, journal.noted(self._journals.get(workflow), note, self._clock()))

    async def journal(self, workflow: WorkflowIdentity) -> tuple[Journal, int] | None:
        """As base_journal.Journals.journal."""
        now = self._clock()
        found = self._put(workflow, journal.aged(self._journals.get(workflow), now))
        return None if found is None else (found, now)

    async def save(self, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int) -> SaveResult:
        """As base_journal.Journals.save."""
        left, result = journal.saved(self._journals.get(workflow), content, expected, kept, self._clock())
        self._put(workflow, left)
        return result

    def _put(self, workflow: WorkflowIdentity, left: Journal | None) -> Journal | None:
        if left is None:
            self._journals.pop(workflow, None)
        else:
            self._journals[workflow] = left
        return left
