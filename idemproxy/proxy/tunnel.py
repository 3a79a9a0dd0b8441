"""A tunnel: two connections that have left HTTP by an upgrade (RFC 9110, section 7.8), and carry another protocol, unread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from idemproxy.proxy.outbound import cut
from idemproxy.proxy.receiving import UnsureError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aiohttp import StreamReader

    from idemproxy.proxy.connection import Connection
    from idemproxy.proxy.reply import Reply
    from idemproxy.server.incoming import Incoming


class Tunnel:
    """Opened by the upstream's 101, which is the `reply`; `to_client` and `to_upstream` count the bytes behind it.

    Each way goes at the pace of its slower side, and ends by itself: the other one stays open, for as long as its sides like.
    With TLS on either side, and when one of them is lost, both ways end at once. There are no limits of time.
    """

    def __init__(self, http: Incoming, connection: Connection, reply: Reply) -> None:
        self.reply = reply
        self.to_client = 0
        self.to_upstream = 0
        self._http = http
        self._connection = connection
        self._over = asyncio.Event()
        self._broken = False
        self._open_ways = 2

    async def carry(self) -> None:
        """Tell the client, and pass on what either side says until it is over. Raises ConnectionError when the client is gone."""
        self._connection.tunnel()
        self._http.write(b"HTTP/1.1 %d %b\r\n" % (self.reply.status, self.reply.head))
        inlet = self._http.connection.divert()
        ways = [asyncio.create_task(self._run(way)) for way in (self._up(inlet), self._down())]
        try:
            await self._over.wait()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        if self._broken:
            cut(self._http, reset=True)

    def close(self) -> None:
        """End it at once, in both ways."""
        self._over.set()

    async def _run(self, way: Coroutine[None, None, bool]) -> None:
        """One way, to its end; the tunnel ends with it when it is the last, or when its end cannot be told without closing."""
        try:
            is_told = await way
        except (ConnectionError, UnsureError):
            is_told, self._broken = False, True
        self._open_ways -= 1
        if not is_told or not self._open_ways:
            self.close()

    async def _up(self, inlet: StreamReader) -> bool:
        connection = self._connection
        while piece := await inlet.readany():
            self.to_upstream += len(piece)
            connection.write(piece)
            await connection.drain()
            if connection.lost:
                raise ConnectionResetError("the upstream is gone")
        return connection.write_end()

    async def _down(self) -> bool:
        http = self._http
        while piece := await self._connection.read():
            self.to_client += len(piece)
            http.write(piece)
            await http.connection.drain()
        transport = http.connection.transport
        if transport is None or transport.is_closing() or not transport.can_write_eof() or self._connection.lost:
            return False
        transport.write_eof()
        return True
