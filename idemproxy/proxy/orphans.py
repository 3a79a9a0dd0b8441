"""The claims of a dead process, found by the one that took its place: unknown at once, and not when their leases end."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Final

from idemproxy.core.outcome import Settlement
from idemproxy.core.record import Phase
from idemproxy.core.transition import Doubt, Settled, hold_of
from idemproxy.store.base import StoreUnavailableError

if TYPE_CHECKING:
    from idemproxy.observe.metrics import Metrics
    from idemproxy.store.base import Store

_log = logging.getLogger(__name__)

_PAGE: Final = 500
_RETRY_SECONDS: Final = 1.0


class Owner:
    """Draws the nonces of this process's claims: the instance's name, the run's, and a number that is drawn for each claim."""

    def __init__(self, instance: str) -> None:
        self.instance = f"{instance}-"
        self.run = f"{self.instance}{secrets.token_hex(4)}-"

    def draw(self) -> str:
        """A nonce for one claim."""
        return self.run + secrets.token_hex(12)

    def is_orphaned(self, owner: str) -> bool:
        """Whether a claim belongs to an earlier run of this instance, which is dead, since this one has taken its place."""
        return owner.startswith(self.instance) and not owner.startswith(self.run)


async def mark_orphans(store: Store, owner: Owner, metrics: Metrics) -> None:
    """Look through all records in flight, for as long as it takes the store to be there."""
    cursor, marked = "", 0
    while True:
        try:
            page = await store.list(Phase.IN_FLIGHT, _PAGE, cursor)
            for identity, record in page.records:
                if owner.is_orphaned(record.owner):
                    settled = await store.mark_unknown(identity, hold_of(record), Doubt())
                    metrics.settled(Settlement.MARK_UNKNOWN.value, settled)
                    marked += settled is Settled.WRITTEN
        except StoreUnavailableError:
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        cursor = page.cursor
        if not cursor:
            break
    if marked:
        _log.warning("marked unknown: claims of an earlier run of this instance, %d of them", marked)
