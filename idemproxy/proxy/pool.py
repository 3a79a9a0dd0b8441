"""The connections to one upstream: which one a request gets, and how many there are."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from idemproxy.proxy.dialing import dial, name_failure

if TYPE_CHECKING:
    import ssl

    from idemproxy.core.outcome import NeverSent
    from idemproxy.core.policy import Upstream
    from idemproxy.proxy.connection import Connection


class NotSentError(Exception):
    """No byte of the request was written."""

    def __init__(self, outcome: NeverSent) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Pool:
    """At most `max_connections` connections to an upstream; the one used last is used next.

    A connection that has been idle for `pool_idle` seconds is closed, not used: the upstream may be about to close it itself.
    """

    def __init__(self, upstream: Upstream, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None = None) -> None:
        if (upstream.scheme == "https") is not (tls is not None):
            raise ValueError("an upstream is spoken to over TLS if, and only if, its URL says https")
        self.upstream = upstream
        self._loop = loop
        self._tls = tls
        self._idle: list[Connection] = []
        self._open = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    def take_idle(self) -> Connection | None:
        """As `acquire`, where no connection need be made or waited for."""
        oldest = self._loop.time() - self.upstream.pool_idle
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > oldest and connection.usable:
                return connection
            connection.abort()
            self._give_place()
        return None

    async def acquire(self) -> Connection:
        """A connection on which nothing has been written for this request. Raises NotSentError."""
        connection = self.take_idle()
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(self.upstream.timeouts.connect):
                await self._take_place()
                try:
                    return await self._take_idle_or_connect()
                except BaseException:
                    self._give_place()
                    raise
        except OSError as exc:
            raise NotSentError(name_failure(exc, self.upstream)) from exc

    def give_back(self, connection: Connection) -> None:
        """End an exchange: keep the connection if another may follow, close it otherwise."""
        connection.end()
        if connection.reusable:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
            if self._sweep is None:
                self._sweep = self._loop.call_later(self.upstream.pool_idle, self._close_idle)
            if self._queue:
                self._wake_one()
        else:
            connection.abort()
            self._give_place()

    def close(self) -> None:
        """Close what is idle; what is in use is closed by whoever uses it."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self._idle:
            connection.abort()
        self._open -= len(self._idle)
        self._idle.clear()

    async def _take_place(self) -> None:
        """Count one more connection, waiting, in turn, while all are in use."""
        while self._open >= self.upstream.max_connections and not self._idle:
            place = self._loop.create_future()
            self._queue.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._wake_one()  # the place that was offered to us goes to the next
                raise
        self._open += 1

    async def _take_idle_or_connect(self) -> Connection:
        connection = self.take_idle()
        if connection is not None:
            self._give_place()  # it has a place of its own already
            return connection
        return await dial(self.upstream, self._tls, self._loop)

    def _give_place(self) -> None:
        self._open -= 1
        self._wake_one()

    def _wake_one(self) -> None:
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return

    def _close_idle(self) -> None:
        self._sweep = None
        now = self._loop.time()
        oldest = now - self.upstream.pool_idle
        stale = [connection for connection in self._idle if connection.idle_since <= oldest]
        self._idle = [connection for connection in self._idle if connection.idle_since > oldest]
        for connection in stale:
            connection.abort()
            self._give_place()
        if self._idle:
            self._sweep = self._loop.call_at(self._idle[0].idle_since + self.upstream.pool_idle, self._close_idle)
