"""Writing down how an operation ended, also when the store cannot be told at once.

What the store does not take goes to the spool, and is written when the store returns, by this process or by its heir. Until then
the record is in flight, then unknown, and never free. And a claim whose fate is not known, since the store failed while it was
asked, is looked for when the store returns, and given back, so that all is as it was before: nothing was sent under it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from idemproxy.core.outcome import Settlement
from idemproxy.core.record import Phase
from idemproxy.core.transition import Completion, Doubt, Found, Granted, Release, Settled, hold_of
from idemproxy.store.base import GivenBackError, LostRecordsError, StoreError, StoreUnavailableError
from idemproxy.store.spool import Entry

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from idemproxy.core.record import Identity
    from idemproxy.core.transition import Ask, Ending, Hold
    from idemproxy.observe.metrics import Metrics
    from idemproxy.store.base import Store
    from idemproxy.store.spool import Spool

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
_SETTLEMENTS: Final = MappingProxyType(
    {Completion: Settlement.COMPLETE, Doubt: Settlement.MARK_UNKNOWN, Release: Settlement.RELEASE}
)
_BATCH: Final = 64
_MAX_UNCERTAIN: Final = 10_000
_MAX_UNKEPT: Final = 1_000


class Settler:
    """Tells the store, or the spool. `spool` None: what the store does not take is kept in memory only."""

    def __init__(self, store: Store, spool: Spool | None, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._spool = spool
        self._metrics = metrics
        self._uncertain: dict[str, tuple[Identity, Ask, Ending]] = {}
        self.unkept: deque[Entry] = deque()
        """Endings that neither the store nor the spool has taken."""
        self._wanted = asyncio.Event()
        if spool is not None and spool.entries:
            self._wanted.set()
        self._tell_spool()
        self._catching_up = loop.create_task(self._catch_up())

    async def settle(self, identity: Identity, hold: Hold, ending: Ending) -> Settled | None:
        """Write an ending; None when the store has not taken it. Never raises for what a store can do."""
        try:
            settled = await self._written(identity, hold, ending)
            self._metrics.settled(_SETTLEMENTS[type(ending)], settled)
            waits = settled is Settled.STALE and await self._may_come_back(identity, ending)
        except StoreUnavailableError as exc:
            _log.error("the store did not take an ending: %s", exc)
            await self._keep(Entry(identity, hold, ending))
            return None
        except asyncio.CancelledError:  # the run ends; whether the store is still told or not, the next run will tell it
            await self._keep(Entry(identity, hold, ending))
            raise
        if waits:
            await self._keep(Entry(identity, hold, ending))
        return settled

    def give_back(self, identity: Identity, ask: Ask, ending: Ending) -> None:
        """A claim that may have been granted, although the store could not say so, is to end so: nothing was sent under it."""
        if len(self._uncertain) < _MAX_UNCERTAIN:
            self._uncertain[ask.owner] = identity, ask, ending
            self._wanted.set()

    def look_again(self) -> None:
        """Endings of others have come into the spool."""
        self._tell_spool()
        self._wanted.set()

    async def close(self) -> None:
        """Stop; what is in the spool stays there."""
        self._catching_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._catching_up

    def _written(self, identity: Identity, hold: Hold, ending: Ending) -> Coroutine[Any, Any, Settled]:
        """The store's own coroutine: one frame fewer for each request."""
        match ending:
            case Completion():
                return self._store.complete(identity, hold, ending)
            case Doubt():
                return self._store.mark_unknown(identity, hold, ending)
            case Release():
                return self._store.release(identity, hold)
            case _:
                assert_never(ending)

    async def _write(self, identity: Identity, hold: Hold, ending: Ending) -> Settled:
        settled = await self._written(identity, hold, ending)
        self._metrics.settled(_SETTLEMENTS[type(ending)], settled)
        return settled

    async def _keep(self, entry: Entry) -> None:
        """In the spool; where that fails too, in memory, for as long as this process lives."""
        why: object = "there is no spool"
        if self._spool is not None:
            try:
                await self._spool.put(entry)
                why = None
            except StoreError as exc:
                why = exc
        if why is not None:
            _log.error("an ending is kept in memory only, and is lost with this process: %s", why)
            if len(self.unkept) < _MAX_UNKEPT:
                self.unkept.append(entry)
        self._tell_spool()
        self._wanted.set()

    async def _catch_up(self) -> None:
        """Tell the store what it has missed, as soon as it can be told."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                with contextlib.suppress(LostRecordsError):  # it takes writes, and what has happened is a fact
                    await self._store.check()  # so that an outage costs one attempt, and not one for each ending
                await self._empty_spool()
                await self._empty_memory()
                await self._give_back_all()
            except Exception as exc:  # noqa: BLE001 - whatever it is, what waits must be tried again
                if not isinstance(exc, StoreError):
                    _log.exception("a fault of this proxy, while it caught up with the store")
            if self.unkept or self._uncertain or (self._spool is not None and self._spool.entries):
                await asyncio.sleep(RETRY_SECONDS)
                self._wanted.set()

    async def _empty_spool(self) -> None:
        """Offer every ending once; one that the store cannot take now does not hold up the others."""
        spool, last = self._spool, 0
        while spool is not None and (waiting := await spool.after(last, _BATCH)):
            taken = 0
            for number, entry in waiting:
                last = number
                if await self._offered(entry):
                    await spool.remove(number, entry)
                    taken += 1
                self._tell_spool()
            _log.info("endings that the store was told from the spool: %d; left: %d", taken, spool.entries)

    async def _empty_memory(self) -> None:
        for _ in range(len(self.unkept)):
            entry = self.unkept.popleft()
            if not await self._offered(entry):
                self.unkept.append(entry)

    async def _offered(self, entry: Entry) -> bool:
        """Whether the store was told an ending: it took it, or has a later one, or one that a person has decided."""
        try:
            settled = await self._write(entry.identity, entry.hold, entry.ending)
        except StoreUnavailableError as exc:
            _log.warning("an ending waits on: %s", exc)
            return False
        if settled is Settled.STALE and await self._may_come_back(entry.identity, entry.ending):
            return False
        if settled is Settled.STALE:
            _log.warning("an ending came too late: its record %s was settled otherwise", entry.identity)
        return True

    async def _may_come_back(self, identity: Identity, ending: Ending) -> bool:
        """Whether an answer came while another holds the record, perhaps only to ask: then it may be this holder's again."""
        if not isinstance(ending, Completion):
            return False
        record = await self._store.read(identity)
        return record is not None and record.phase is Phase.IN_FLIGHT

    async def _give_back_all(self) -> None:
        """Offer each back once; one that the store cannot take now does not hold up the others."""
        for identity, ask, ending in tuple(self._uncertain.values()):
            try:
                hold = await self._granted(identity, ask)
                if hold is not None:
                    await self._write(identity, hold, ending)
            except (GivenBackError, LostRecordsError):
                pass  # nobody holds it
            except StoreUnavailableError as exc:
                _log.warning("a claim waits to be given back: %s", exc)
                continue
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
