"""The claims of a dead process, found by one that lives on its spool: unknown at once, and not when their leases end."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from idemproxy.core.outcome import Settlement
from idemproxy.core.record import Phase
from idemproxy.core.transition import Doubt, Settled, hold_of
from idemproxy.store.base import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from idemproxy.observe.metrics import Metrics
    from idemproxy.store.base import Store
    from idemproxy.store.spool import Spool

_log = logging.getLogger(__name__)

ADOPTION_SECONDS: Final = 10.0
_PAGE: Final = 500
_RETRY_SECONDS: Final = 1.0


class Owner:
    """Draws the nonces of this process's claims: the instance's name, and a number that is drawn for each claim.

    By the system, for each anew: what is drawn ahead, or counted, two copies of a machine that runs would both give to a claim.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def draw(self) -> str:
        """A nonce for one claim."""
        return f"{self._instance}-{os.urandom(12).hex()}"


async def keep_adopting(
    spool: Spool, store: Store, metrics: Metrics, look_again: Callable[[], None], seconds: float = ADOPTION_SECONDS
) -> None:
    """Take over what dead processes have left in the spool's directory: at once, and every so many seconds.

    `look_again` is called when endings wait in the spool.
    """
    while True:
        try:
            dead = await spool.adopt()
            if spool.entries:
                look_again()
            if dead:
                await mark_orphans(store, dead, metrics)
                await spool.forget(dead)
        except StoreError as exc:
            _log.warning("what dead proxies have left waits on: %s", exc)
        await asyncio.sleep(seconds)


async def mark_orphans(store: Store, dead: Collection[str], metrics: Metrics) -> None:
    """Look through all records in flight, for as long as it takes the store to be there, for claims of these instances."""
    cursor, marked = "", 0
    while True:
        try:
            page = await store.list(Phase.IN_FLIGHT, _PAGE, cursor)
            for identity, record in page.records:
                if record.owner.partition("-")[0] in dead:
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
        _log.warning("marked unknown: claims of proxies that are dead, %d of them; see `idemproxy records list`", marked)
