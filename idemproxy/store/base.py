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
from dataclasses import dataclass
from typing import Final, Protocol

from idemproxy.core.record import MICROSECONDS, Identity, Phase, Record
from idemproxy.core.transition import Act, Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store.base_finding import Finding
from idemproxy.store.base_journal import Journals


class StoreError(Exception):
    """Any failure of a store; the message says which store, what was tried, and what to do."""


class StoreUnavailableError(StoreError):
    """The store did not confirm: it is unreachable, too slow, full, read-only, or broken."""


AUDIT_KEPT: Final = 400 * 24 * 3600 * MICROSECONDS
"""For how long after the last act an audit trail is kept, in microseconds: more than a year."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some records, and where to go on; an empty cursor ends the list."""

    records: Sequence[tuple[Identity, Record]]
    cursor: str


class StoreUncertainError(StoreUnavailableError):
    """The store was told and did not reply: the transition may have happened, or may happen yet."""


class GivenBackError(StoreUnavailableError):
    """A claim was granted, what was asked of the store's durability did not hold, and it was given back: nobody holds it."""


class LostRecordsError(StoreUnavailableError):
    """The store has lost records since this process began to use it: where it has none, nobody knows whether there was one."""


class Wake(Protocol):
    """A place to wait for the settlement of one record."""

    async def wait(self, timeout: float) -> None:
        """Return when the record may have been settled, or after `timeout` seconds; a lost message only delays."""


class Store(Protocol):
    """A home for records."""

    @property
    def name(self) -> str:
        """`sqlite`, `redis` or `memory`: the value of the metrics' label `store`."""

    @property
    def journals(self) -> Journals:
        """The journals of workflows, open for as long as the store is."""

    async def start(self) -> None:
        """Open what the store needs. Raises StoreError for what will not heal; an outage is not an error here."""

    async def close(self) -> None:
        """Finish what was begun, then let go of every resource."""

    async def check(self) -> None:
        """Return when the store can take writes now. Raises StoreUnavailableError with the reason."""

    async def inspect(self) -> Sequence[Finding]:
        """Look at the server, or at the file: whether records that are put there stay. Changes nothing.

        Also before `start`, as far as something can be seen then. Raises StoreUnavailableError when nothing can.
        """

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

    async def mark_unknown(self, identity: Identity, hold: Hold, doubt: Doubt) -> Settled:
        """Name the state that only the upstream knows (core.transition.mark_unknown) and wake those who wait."""

    async def read(self, identity: Identity) -> Record | None:
        """The record as it stands now, aged; changes nothing that a later claim would not change."""

    async def list(self, phase: Phase | None, limit: int, cursor: str) -> Page:
        """Some records, of one phase or of all, aged, without their answers: at most `limit`, or few more.

        Begin with an empty `cursor` and go on with the page's own until that is empty. A record that is there throughout is
        listed at least once; the order is the store's.
        """

    async def resolve(self, identity: Identity, fence: int, resolution: Completion | None, who: str, why: str) -> Acted:
        """Let a person decide (core.transition.resolve), note it in the audit trail in the same step, and wake those who wait."""

    async def forget(self, identity: Identity, fence: int, who: str, why: str) -> Acted:
        """Let a person remove a record (core.transition.forget), and note the act in the audit trail in the same step."""

    async def audit(self, identity: Identity) -> Sequence[Act]:
        """What persons have done to this record, in order; kept for AUDIT_KEPT, also when the record has gone."""

    def watch(self, identity: Identity) -> AbstractContextManager[Wake]:
        """Register interest, for as long as the context lasts, before a `watched` claim looks again."""
