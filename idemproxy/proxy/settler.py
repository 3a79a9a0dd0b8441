"""Writing down how an operation ended, also when the store cannot be told at once.

What the store does not take goes to the spool, and is written when the store returns, by this process or by its heir. Until then
the record is in flight, then unknown, and never free. And a claim whose fate is not known, since the store failed while it was
asked, is looked for when the store returns, and given back, so that all is as it was before: nothing was sent under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, assert_never

from idemproxy.core.outcome import Settlement
from idemproxy.core.transition import Completion, Doubt, Found, Granted, Release, Settled, hold_of
from idemproxy.store.base import StoreError, StoreUnavailableError
from idemproxy.store.spool import Entry

if TYPE_CHECKING:
    from idemproxy.core.record import Identity
    from idemproxy.core.transition import Ask, Ending, Hold
    from idemproxy.observe.metrics import Metrics
    from idemproxy.store.base import Store
    from idemproxy.store.spool import Spool

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
_BATCH: Final = 64
_MAX_UNCERTAIN: Final = 10_000


class Settler:
    """Tells the store, or the spool. `spool` None: what the store does not take is lost, and its record becomes unknown."""

    def __init__(self, store: Store, spool: Spool | None, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._spool = spool
        self._metrics = metrics
        self._uncertain: dict[str, tuple[Identity, Ask, Ending]] = {}
        self._wanted = asyncio.Event()
        if spool is not None and spool.entries:
            self._wanted.set()
        self._tell_spool()
        self._catching_up = loop.create_task(self._catch_up())

    async def settle(self, identity: Identity, hold: Hold, ending: Ending) -> Settled | None:
        """Write an ending; None when the store has not taken it. Never raises for what a store can do."""
        try:
            return await self._write(identity, hold, ending)
        except StoreUnavailableError as exc:
            _log.error("the store did not take an ending: %s", exc)
            await self._keep(Entry(identity, hold, ending))
            return None

    def give_back(self, identity: Identity, ask: Ask, ending: Ending) -> None:
        """A claim that may have been granted, although the store could not say so, is to end so: nothing was sent under it."""
        if len(self._uncertain) < _MAX_UNCERTAIN:
            self._uncertain[ask.owner] = identity, ask, ending
            self._wanted.set()

    async def close(self) -> None:
        """Stop; what is in the spool stays there."""
        self._catching_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._catching_up

    async def _write(self, identity: Identity, hold: Hold, ending: Ending) -> Settled:
        match ending:
            case Completion():
                settlement, settled = Settlement.COMPLETE, await self._store.complete(identity, hold, ending)
            case Doubt():
                settlement, settled = Settlement.MARK_UNKNOWN, await self._store.mark_unknown(identity, hold, ending)
            case Release():
                settlement, settled = Settlement.RELEASE, await self._store.release(identity, hold)
            case _:
                assert_never(ending)
        self._metrics.settled(settlement.value, settled)
        return settled

    async def _keep(self, entry: Entry) -> None:
        if self._spool is None:
            return
        try:
            await self._spool.put(entry)
        except StoreError as exc:
            _log.error("an ending is lost, its record will be unknown: %s", exc)
        self._tell_spool()
        self._wanted.set()

    async def _catch_up(self) -> None:
        """Tell the store what it has missed, as soon as it can be told."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._empty_spool()
                await self._give_back_all()
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)
                self._wanted.set()

    async def _empty_spool(self) -> None:
        spool = self._spool
        while spool is not None and spool.entries:
            waiting = await spool.oldest(_BATCH)
            for number, entry in waiting:
                await self._write(entry.identity, entry.hold, entry.ending)
                await spool.remove(number, entry)
                self._tell_spool()
            _log.info("the store has taken %d endings from the spool, %d are left", len(waiting), spool.entries)

    async def _give_back_all(self) -> None:
        while self._uncertain:
            identity, ask, ending = next(iter(self._uncertain.values()))
            hold = await self._granted(identity, ask)
            if hold is not None:
                await self._write(identity, hold, ending)
            del self._uncertain[ask.owner]

    async def _granted(self, identity: Identity, ask: Ask) -> Hold | None:
        """The hold of a claim whose reply was lost, None when it was not granted.

        Asked again, a claim comes before or after its first copy, and is the same one. A reclaim is only looked for: to ask again
        could take a record whose outcome is unknown, when its first copy did not.
        """
        if ask.reclaim is None:
            match await self._store.claim(identity, ask):
                case Granted(hold):
                    return hold
                case Found(record):
                    return hold_of(record) if record.owner == ask.owner else None
        found = await self._store.read(identity)
        return hold_of(found) if found is not None and found.owner == ask.owner else None

    def _tell_spool(self) -> None:
        if self._spool is not None:
            self._metrics.spool(self._spool.entries, self._spool.bytes)
