"""The memory store: the transitions over a dictionary. For tests; it keeps nothing beyond its process, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from idemproxy.core import transition
from idemproxy.core.record import Identity, Phase, Record
from idemproxy.core.transition import Ask, Completion, Found, Granted, Hold, Settled
from idemproxy.store.base import Wake
from idemproxy.store.base_wake import LocalWakes

Result = TypeVar("Result")


class MemoryStore:
    """Records in this object; `clock` gives microseconds since the epoch. No step awaits, so each happens at once."""

    name: Final = "memory"

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._records: dict[Identity, Record] = {}
        self._wakes = LocalWakes()

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to let go of: the records stay for as long as the object does."""

    async def check(self) -> None:
        """Memory can always be written."""

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

    async def mark_unknown(self, identity: Identity, hold: Hold, status: int | None, answer: bytes | None) -> Settled:
        """As base.Store.mark_unknown."""
        marked = transition.mark_unknown(self._records.get(identity), hold, status, answer, self._clock())
        return self._put(identity, *marked)

    async def read(self, identity: Identity) -> Record | None:
        """As base.Store.read."""
        return transition.aged(self._records.get(identity), self._clock())

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """As base.Store.watch."""
        return self._wakes.watch(identity)

    def lose(self, identity: Identity) -> None:
        """Forget a record behind everyone's back, as a flushed or failed-over store would: for the contract suite."""
        self._records.pop(identity, None)

    def _put(self, identity: Identity, record: Record | None, result: Result) -> Result:
        if record is None:
            self._records.pop(identity, None)
        else:
            self._records[identity] = record
        if record is None or record.phase is not Phase.IN_FLIGHT:
            self._wakes.wake(identity)
        return result
