"""The heartbeat that renews what this process holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from idemproxy.core.record import Identity
from idemproxy.core.transition import Ask, Granted, Hold
from idemproxy.observe.metrics import Metrics
from idemproxy.proxy.lease import Lease, Leases, elapsed
from idemproxy.store.memory import MemoryStore

IDENTITY = Identity("shared", "api", "0" * 64)
LEASE = 60.0


class Faulty(MemoryStore):
    """A store whose first renewal fails by a fault of the program."""

    faults = 1

    async def renew(self, holds: Sequence[tuple[Identity, Hold]], lease: int) -> Sequence[bool]:
        """As MemoryStore.renew, later."""
        if self.faults:
            self.faults -= 1
            raise LookupError("a fault for the test")
        return await super().renew(holds, lease)


async def test_a_fault_in_a_renewal_does_not_end_the_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong once, leases are renewed the next time; the fault is logged."""
    clock = count(1_700_000_000_000_000)
    store = Faulty(lambda: next(clock))
    claimed = await store.claim(IDENTITY, Ask("v1:f", "owner", "all", round(LEASE * 1e6)))
    assert isinstance(claimed, Granted)
    leases = Leases(store, asyncio.get_running_loop(), 0.01, Metrics(["all"], "memory"))
    lease = Lease(before := elapsed(), LEASE)
    leases.keep(IDENTITY, claimed.hold, lease)

    async with asyncio.timeout(10):
        while lease.until <= before + LEASE:  # noqa: ASYNC110 - nothing else tells of a renewal
            await asyncio.sleep(0.01)
    await leases.close()

    assert ["a fault of this proxy, while it renewed leases"] == [record.message for record in caplog.records]
