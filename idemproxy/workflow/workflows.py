"""Workflows of one caller: their journals, and the records of their steps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from idemproxy.core.journal import WorkflowIdentity
from idemproxy.core.key import hash_secretly
from idemproxy.core.problem import Slug, problem
from idemproxy.core.scope import find_scope
from idemproxy.core.transition import Verb
from idemproxy.workflow.answers import shown
from idemproxy.workflow.asked import TurnedAwayError
from idemproxy.workflow.checkpoint import History, checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idemproxy.core.journal import Entry, Journal
    from idemproxy.core.policy import Route
    from idemproxy.core.record import Identity
    from idemproxy.core.scope import ScopeRule
    from idemproxy.proxy.reply import Reply
    from idemproxy.store.base import Store
    from idemproxy.store.base_journal import Journals
    from idemproxy.workflow.asked import Asked

_AT_ONCE: Final = 16
"""Records that are read together: each may hold an answer of some size."""


class Workflows:
    """The page of checkpoints. `scope` says whose workflows there are, and those of the routes whose steps."""

    def __init__(self, store: Store, routes: Sequence[Route], scope: ScopeRule, secret: bytes | None) -> None:
        self._store = store
        self._secret = secret
        self._scope = scope
        self._scopes = {route.name: route.policy.scope for route in routes}

    @property
    def journals(self) -> Journals:
        """Where the journals are."""
        return self._store.journals

    def identity(self, asked: Asked) -> WorkflowIdentity:
        """The workflow that is asked for, as its journal is found."""
        scope = find_scope(asked.request.fields, self._scope, self._secret)
        return WorkflowIdentity(scope, hash_secretly(asked.name.encode("ascii"), self._secret))

    async def checkpoint(self, asked: Asked) -> Reply:
        """Where the workflow stands. Raises TurnedAwayError."""
        workflow = self.identity(asked)
        journal, now = await self._journal(workflow)
        entries = self._of_caller(journal.entries, asked)
        if not entries and journal.memory is None:
            raise _none()  # all there is, is another's
        history = History()
        for at in range(0, len(entries), _AT_ONCE):
            some = entries[at : at + _AT_ONCE]
            records = await asyncio.gather(*(self._store.read(entry.note.record) for entry in some))
            if None in records:  # what its absence proves is judged by a time at which it was absent
                _, now = await self._journal(workflow)
            forgotten = await self._forgotten(
                [entry.note.record for entry, record in zip(some, records, strict=True) if record is None]
            )
            await asyncio.to_thread(history.extend, some, records, now, forgotten)
        return shown(checkpoint(asked.name, history, journal.memory))

    async def _journal(self, workflow: WorkflowIdentity) -> tuple[Journal, int]:
        """The journal and the time at which it was read. Raises TurnedAwayError."""
        found = await self.journals.journal(workflow)
        if found is None:
            raise _none()
        return found

    async def _forgotten(self, absent: Sequence[Identity]) -> frozenset[Identity]:
        """Of these the records that a person has removed: so their absence proves nothing."""
        trails = await asyncio.gather(*(self._store.audit(each) for each in absent))
        return frozenset(each for each, acts in zip(absent, trails, strict=True) if acts and acts[-1].verb is Verb.FORGET)

    def _of_caller(self, entries: Sequence[Entry], asked: Asked) -> list[Entry]:
        """The steps whose records are in the caller's scope: a route may have a narrower one than workflows have."""
        rules = {self._scopes.get(entry.note.route, self._scope) for entry in entries}
        scopes = {rule: find_scope(asked.request.fields, rule, self._secret) for rule in rules}
        return [entry for entry in entries if entry.note.record.scope == scopes[self._scopes.get(entry.note.route, self._scope)]]


def unknown(detail: str) -> TurnedAwayError:
    """There is nothing of a workflow."""
    return TurnedAwayError(problem(Slug.WORKFLOW_UNKNOWN, detail))


def _none() -> TurnedAwayError:
    return unknown("Nothing is kept of such a workflow for this caller: it has not begun, or it is too long ago.")
