"""The protocol of a store's journals: what base.Store promises of its methods holds for these, too."""

from __future__ import annotations

from typing import Protocol

from idemproxy.core.journal import Journal, Note, SaveResult, WorkflowIdentity


class Journals(Protocol):
    """A home for the journals of workflows. A journal and the records of its steps may live in different places."""

    async def note(self, workflow: WorkflowIdentity, note: Note) -> None:
        """Keep a step that has been claimed in the journal (core.journal.noted), as durably as the claim."""

    async def journal(self, workflow: WorkflowIdentity) -> tuple[Journal, int] | None:
        """The journal and the store's time as it was read, None where there is none (any more)."""

    async def save(self, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int) -> SaveResult:
        """Keep an agent's memory (core.journal.saved), as durably as a claim."""
