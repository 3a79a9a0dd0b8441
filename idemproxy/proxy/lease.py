"""The leases of this process: one batched renewal for all holds, and for each hold its own view of how long it lasts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from idemproxy.core.record import MICROSECONDS
from idemproxy.store.base import StoreUnavailableError

if TYPE_CHECKING:
    from idemproxy.core.record import Identity
    from idemproxy.core.transition import Hold
    from idemproxy.observe.metrics import Metrics
    from idemproxy.store.base import Store

_log = logging.getLogger(__name__)


RETRY_SECONDS: Final = 0.5
"""After which a renewal that the store did not confirm is tried again."""

elapsed: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Gives seconds on a clock that only goes forward, and goes on while the machine sleeps.

Not the event loop's time: uvloop reads its clock once an iteration, and does not see that the process was stopped within one.
"""


class Lease:
    """Until when, on the monotonic clock, its holder may believe in itself.

    Counted from before the claim, or the renewal, was asked for: a process that was stopped in between, or starved, finds the
    lease over although the store granted it a moment ago.
    """

    __slots__ = ("duration", "lost", "until")

    def __init__(self, asked_at: float, duration: float) -> None:
        self.duration = duration
        self.until = asked_at + duration
        self.lost = False

    def is_over(self) -> bool:
        """Whether another may believe by now that the holder is dead."""
        return self.lost or elapsed() >= self.until


class Leases:
    """Renews every lease of this process, all in one batch, every `interval` seconds: a third of the shortest lease."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, interval: float, metrics: Metrics) -> None:
        self._store = store
        self._loop = loop
        self._interval = interval
        self._metrics = metrics
        self._kept: dict[str, tuple[Identity, Hold, Lease]] = {}
        """By the owner's nonce, which is drawn for one claim alone."""
        self._heartbeat: asyncio.Task[None] | None = None

    def keep(self, identity: Identity, hold: Hold, lease: Lease) -> None:
        """Renew the lease until it is let go."""
        self._kept[hold.owner] = identity, hold, lease
        self._metrics.attempt_started()
        if self._heartbeat is None:
            self._heartbeat = self._loop.create_task(self._beat())

    def let_go(self, hold: Hold) -> None:
        """Renew it no more."""
        del self._kept[hold.owner]
        self._metrics.attempt_ended()

    def held(self) -> list[tuple[Identity, Hold]]:
        """What this process holds now."""
        return [(identity, hold) for identity, hold, _ in self._kept.values()]

    async def close(self) -> None:
        """Stop renewing."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heartbeat

    async def _beat(self) -> None:
        renewed = True
        while True:
            await asyncio.sleep(self._interval if renewed else min(RETRY_SECONDS, self._interval))
            by_duration: dict[float, list[Hold]] = {}
            for _, hold, lease in self._kept.values():
                if not lease.lost:
                    by_duration.setdefault(lease.duration, []).append(hold)
            renewed = all([await self._renew(holds, duration) for duration, holds in by_duration.items()])

    async def _renew(self, holds: list[Hold], duration: float) -> bool:
        """One batch; False when the store did not confirm it, and it is to be tried again soon: the leases run on."""
        kept = [self._kept[hold.owner] for hold in holds if hold.owner in self._kept]
        asked_at = elapsed()
        try:
            renewed = await self._store.renew([(identity, hold) for identity, hold, _ in kept], round(duration * MICROSECONDS))
        except StoreUnavailableError as exc:
            _log.warning("%d leases could not be renewed: %s", len(kept), exc)
            return False
        except Exception:  # noqa: BLE001 - whatever it is, the other leases, and this one the next time, are to be renewed
            _log.exception("a fault of this proxy, while it renewed leases")
            return False
        for (_, hold, lease), still_held in zip(kept, renewed, strict=True):
            if still_held:
                lease.until = asked_at + duration
            elif hold.owner in self._kept:
                lease.lost = True
                self._metrics.lease_lost()
        return True
