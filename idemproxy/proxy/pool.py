"""The connections to one upstream: which one a request gets, and the one place where a failure to connect gets its name."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING

from idemproxy.core.outcome import NeverSent
from idemproxy.proxy.connection import Connection

if TYPE_CHECKING:
    from idemproxy.core.policy import Upstream


class NotSentError(Exception):
    """No byte of the request was written."""

    def __init__(self, outcome: NeverSent) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Pool:
    """At most `max_connections` connections to an upstream; the one used last is used next.

    A connection that has been idle for `pool_idle` seconds is closed, not used: the upstream may be about to close it itself.
    """

    def __init__(self, upstream: Upstream, loop: asyncio.AbstractEventLoop) -> None:
        self.upstream = upstream
        self._loop = loop
        self._tls = ssl.create_default_context() if upstream.scheme == "https" else None
        self._idle: list[Connection] = []
        self._open = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    async def acquire(self) -> Connection:
        """A connection on which nothing has been written for this request. Raises NotSentError."""
        connection = self._take_idle()
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
        except (OSError, ssl.SSLError) as exc:
            raise NotSentError(_name_failure(exc, self.upstream)) from exc

    def give_back(self, connection: Connection) -> None:
        """End an exchange: keep the connection if another may follow, close it otherwise."""
        connection.end()
        if connection.reusable:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
            if self._sweep is None:
                self._sweep = self._loop.call_later(self.upstream.pool_idle, self._close_idle)
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

    def _take_idle(self) -> Connection | None:
        oldest = self._loop.time() - self.upstream.pool_idle
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > oldest and connection.usable:
                return connection
            connection.abort()
            self._give_place()
        return None

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
        connection = self._take_idle()
        if connection is not None:
            self._give_place()  # it has a place of its own already
            return connection
        upstream = self.upstream
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._loop),
            upstream.host,
            upstream.port,
            ssl=self._tls,
            server_hostname=upstream.host if self._tls is not None else None,
        )
        return connection

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


def _name_failure(exc: OSError, upstream: Upstream) -> NeverSent:
    """What a failure before the first byte is called (RFC 9209, section 2.3), and the status for the caller."""
    place = f"{upstream.host}:{upstream.port}"
    match exc:
        case TimeoutError():
            return NeverSent(f"no connection to {place} within {upstream.timeouts.connect:g} s", "connection_timeout", 504)
        case socket.gaierror():
            return NeverSent(f"the name {upstream.host} does not resolve", "dns_error", 502)
        case ssl.SSLCertVerificationError():
            return NeverSent(f"the certificate of {place} is not trusted: {exc.verify_message}", "tls_certificate_error", 502)
        case ssl.SSLError():
            return NeverSent(f"no TLS with {place}: {exc.reason or exc}", "tls_protocol_error", 502)
        case ConnectionRefusedError():
            return NeverSent(f"{place} refused the connection", "connection_refused", 502)
        case _:
            return NeverSent(f"no connection to {place}: {exc.strerror or exc}", "destination_unavailable", 502)
