"""The memory store: the transitions over a dictionary. For tests; it keeps nothing beyond its process, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, TypeVar

from idemproxy.core import transition
from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store import base_acts, base_list
from idemproxy.store.base import AUDIT_KEPT, Page, Wake
from idemproxy.store.base_acts import Deed
from idemproxy.store.base_finding import Finding, Level
from idemproxy.store.base_journal import Journals
from idemproxy.store.base_wake import LocalWakes
from idemproxy.store.memory_journal import MemoryJournals

Result = TypeVar("Result")


class MemoryStore:
    """Records in this object; `clock` gives microseconds since the epoch. No step awaits, so each happens at once."""

    name: Final = "memory"

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._records: dict[Identity, Record] = {}
        self._acts: dict[Identity, Sequence[Act]] = {}
        self._wakes = LocalWakes()
        self.journals: Journals = MemoryJournals(clock)

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to let go of: the records stay for as long as the object does."""

    async def check(self) -> None:
        """Memory can always be written."""

    async def inspect(self) -> Sequence[Finding]:
        """As base.Store.inspect: it is for tests, and says so."""
        return [
            Finding(
                Level.WARNING, "memory", "for tests only, every record goes with the process; keep them in a file or on a server"
            )
        ]

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:  # noqa: ARG002 -- all settlements wake
        """As base.Store.claim."""
        return self._put(identity, *transition.claim(self._records.get(identity), ask, self._clock()))

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """As base.Store.renew."""
        now = self._clock()
        return [self._put(identity, *transition.renew(self._records.get(identity), hold, lease, now)) for identity, hold in holds]

    async def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Settled:
        """As base.Store.complete."""
        return self._put(identity, *transition.complete(self._records.get(identity), hold, completion, self._clock()))

    async def release(self, identity: Identity, hold: Hold) -> Settled:
        """As base.Store.release."""
        return self._put(identity, *transition.release(self._records.get(identity), hold))

    async def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Settled:
        """As base.Store.mark_unknown."""
        marked = transition.mark_unknown(self._records.get(identity), hold, doubt, self._clock())
        return self._put(identity, *marked)

    async def read(self, identity: Identity) -> Record | None:
        """As base.Store.read."""
        return transition.aged(self._records.get(identity), self._clock())

    async def list(self, phase: Phase | None, limit: int, cursor: str) -> Page:
        """As base.Store.list: in the order of the identities, of which the cursor is the last one listed."""
        if cursor and cursor.count("/") != 2:
            raise base_list.not_a_cursor(cursor)
        now, size = self._clock(), base_list.size(limit)
        aged = {str(each): (each, transition.aged(record, now)) for each, record in self._records.items() if cursor < str(each)}
        found = [
            (at, each, replace(record, answer=None))
            for at, (each, record) in sorted(aged.items())
            if record is not None and phase in (None, record.phase)
        ]
        return Page(
            records=[(each, record) for _, each, record in found[:size]],
            cursor=found[size - 1][0] if len(found) > size else "",
        )

    async def resolve(self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str) -> Acted:
        """As base.Store.resolve."""
        now, record = self._clock(), self._records.get(identity)
        return self._act(identity, *base_acts.resolve(record, fence, resolution, who, why, now))

    async def forget(self, identity: Identity, fence: int, who: str, why: str) -> Acted:
        """As base.Store.forget."""
        now, record = self._clock(), self._records.get(identity)
        return self._act(identity, *base_acts.forget(record, fence, who, why, now))

    async def audit(self, identity: Identity) -> Sequence[Act]:
        """As base.Store.audit."""
        acts = self._acts.get(identity, ())
        if acts and acts[-1].at + AUDIT_KEPT <= self._clock():
            del self._acts[identity]
            return ()
        return acts

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As base.Store.watch."""
        return self._wakes.watch(identity)

    def lose(self, identity: Identity) -> None:
        """Forget a record behind everyone's back, as a flushed or failed-over store would: for the contract suite."""
        self._records.pop(identity, None)

    def _act(self, identity: Identity, record: Record | None, deed: Deed) -> Acted:
        if deed.note is not None:
            self._acts[identity] = (*self._acts.get(identity, ()), deed.note)
            self._put(identity, record, deed.acted)
        return deed.acted

    def _put(self, identity: Identity, record: Record | None, result: Result) -> Result:
        if record is None:
            self._records.pop(identity, None)
        else:
            self._records[identity] = record
        if record is None or record.phase is not Phase.IN_FLIGHT:
            self._wakes.wake(identity)
        return result
