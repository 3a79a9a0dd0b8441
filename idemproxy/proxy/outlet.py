"""What goes out on a connection, at the pace of its other side, and the patience with which that is waited for."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from time import monotonic
from typing import TYPE_CHECKING, Final

from idemproxy.core.policy import KIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from idemproxy.server.incoming import Incoming

PIECE: Final = 64 * KIB
"""How much is written at once: what waits in a transport's buffer is there twice."""
_LOOKS: Final = 8
"""How often it is looked, within the patience, whether something was taken."""


def untaken(transport: asyncio.Transport) -> int:
    """How many bytes the other side has not acknowledged yet: in the transport's buffer, and in the kernel.

    A transport tells nothing of a slow side's progress: the kernel asks it for more only when a third of its own buffer, which
    may be megabytes, is free.
    """
    return transport.get_write_buffer_size() + _in_kernel(transport.get_extra_info("socket").fileno())


def _in_kernel(descriptor: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:  # the connection has just ended, or this is a system that does not tell
        return 0


class Outlet:
    """A reply on its way out. Only the time in which the client was waited for counts, not that in which the body was."""

    def __init__(self, http: Incoming, patience: float, clock: Callable[[], float] = monotonic) -> None:
        self._http = http
        self._connection = http.connection
        self._patience = patience
        self._clock = clock
        self._given: int | None = None
        """Since it was first waited for the client, together with what it had not taken then."""
        self._taken = 0
        self._waited = 0.0

    async def give(self, data: bytes) -> None:
        """Write it all, and wait until the client has taken so much that there is room for more.

        No silence may last for `patience` seconds; and all waiting together may not last longer than that, and than what was
        taken would take at the least rate. Raises ConnectionAbortedError then, and ConnectionError when the client is gone.
        """
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            self._http.write(piece)
            if self._given is not None:
                self._given += len(piece)
            if self._connection.writing_paused:
                await self.wait()

    async def wait(self) -> None:
        """Wait for the client, which has too much to take; `give` does so by itself."""
        draining = asyncio.ensure_future(self._connection.drain())
        began = heard = self._clock()
        self._look()
        try:
            while not draining.done():
                await asyncio.wait([draining], timeout=self._patience / _LOOKS)
                now = self._clock()
                if self._look():
                    heard = now
                if not draining.done():
                    self._judge(now - heard, self._waited + now - began)
        finally:
            draining.cancel()
        self._waited += self._clock() - began
        draining.result()

    def _look(self) -> bool:
        """Whether the client has taken something since the last time."""
        transport = self._connection.transport
        if transport is None:
            return False
        left = untaken(transport)
        if self._given is None:
            self._given = left
        before, self._taken = self._taken, max(self._taken, self._given - left)
        return self._taken > before

    def _judge(self, silence: float, waited: float) -> None:
        if silence >= self._patience:
            raise ConnectionAbortedError("the client has stopped reading")
        if waited >= self._patience + self._taken / self._connection.limits.min_rate:
            raise ConnectionAbortedError("the client reads too little for too long")
