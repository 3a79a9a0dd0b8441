"""Waking within one process: who waits for the settlement of which record. Every store has one of these."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from idemproxy.core.record import Identity
from idemproxy.store.base import Wake


class LocalWakes:
    """The waiters of this process by identity; all methods are called on the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: dict[Identity, list[_LocalWake]] = {}

    @contextmanager
    def watch(self, identity: Identity) -> Iterator[Wake]:
        """Register interest for as long as the context lasts: a wake from now on is not missed, also before `wait`."""
        wake = _LocalWake()
        waiting = self._waiting.setdefault(identity, [])
        waiting.append(wake)
        try:
            yield wake
        finally:
            waiting.remove(wake)
            if not waiting:
                del self._waiting[identity]

    def wake(self, identity: Identity) -> None:
        """Let everyone who watches `identity` look again; nothing happens when nobody does."""
        if self._waiting:  # seldom: to look one up costs more than all the rest
            for wake in self._waiting.get(identity, ()):
                wake.settled.set()


class _LocalWake:
    """One waiter. A wake that came before `wait` counts, and is spent by it."""

    __slots__ = ("settled",)

    def __init__(self) -> None:
        self.settled = asyncio.Event()

    async def wait(self, timeout: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.settled.wait()
        self.settled.clear()
