"""The protocol that every store keeps, each method with its promise in prose.

Common to all methods:

- **Atomic and durable.** A transition happens at once, on the store's clock, and has survived a crash of the proxy (and,
  as far as the store is configured to, of the store) when the call returns.
- **Truthful.** A call that cannot be confirmed raises StoreUnavailableError: the transition may or may not have happened.
  Claims may be asked again with the same owner, completions, releases and marks with the same hold: each is idempotent.
- **Not cancellable half-way.** Cancelling the caller does not undo or tear a transition that has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from idemproxy.core.record import Identity, Record
from idemproxy.core.transition import Ask, Completion, Found, Granted, Hold, Settled


class StoreError(Exception):
    """Any failure of a store; the message says which store, what was tried, and what to do."""


class StoreUnavailableError(StoreError):
    """The store did not confirm: it is unreachable, too slow, full, read-only, or broken."""


class Wake(Protocol):
    """A place to wait for the settlement of one record."""

    async def wait(self, timeout: float) -> None:
        """Return when the record may have been settled, or after `timeout` seconds; a lost message only delays."""


class Store(Protocol):
    """A home for records."""

    @property
    def name(self) -> str:
        """`sqlite`, `redis` or `memory`: the value of the metrics' label `store`."""

    async def start(self) -> None:
        """Open what the store needs. Raises StoreError for what will not heal; an outage is not an error here."""

    async def close(self) -> None:
        """Finish what was begun, then let go of every resource."""

    async def check(self) -> None:
        """Return when the store can take writes now. Raises StoreUnavailableError with the reason."""

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """The atomic read-or-take (see core.transition.claim).

        With `watched` and a record found in flight, its settlement will wake those who `watch` it, in every process.
        """

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """Prolong many leases at once (core.transition.renew), by `lease` microseconds from now; one answer for each hold."""

    async def complete(self, identity: Identity, hold: Hold, completion: Completion) -> Settled:
        """Store the answer (core.transition.complete) and wake those who wait."""

    async def release(self, identity: Identity, hold: Hold) -> Settled:
        """Free the key (core.transition.release) and wake those who wait."""

    async def mark_unknown(self, identity: Identity, hold: Hold, status: int | None, answer: bytes | None) -> Settled:
        """Name the state that only the upstream knows (core.transition.mark_unknown) and wake those who wait."""

    async def read(self, identity: Identity) -> Record | None:
        """The record as it stands now, aged; changes nothing that a later claim would not change."""

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """Register interest, for as long as the context lasts, before a `watched` claim looks again."""
