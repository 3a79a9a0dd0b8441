"""What both listeners hand to the event loop: aiohttp's connection, but for what it cannot read and for what goes wrong in here.

aiohttp would log the line that it could not read, which may be the one with the key or with credentials, and echo it.
Here either is answered with a problem document and the end of the connection, and only faults of ours are logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from aiohttp import StreamReader, web

from idemproxy.core.problem import Problem, Slug, problem
from idemproxy.server.framing import ClientLimits, UnreadableError
from idemproxy.server.incoming import Incoming
from idemproxy.server.reading import ReadingConnection
from idemproxy.server.refusal import Note, refusal

_log = logging.getLogger("idemproxy")

Serving: TypeAlias = Callable[[Incoming], Awaitable[bool]]
"""Serves one request, and tells whether another may follow on its connection."""

_PAUSE: Final = 0.25
"""Seconds without a byte after which a client that was refused counts as one that has stopped sending."""

_LIMITS: Final = ClientLimits()

_BODY_UNREADABLE: Final = problem(
    Slug.BAD_REQUEST, "The request body is broken off or wrongly framed, so nothing was done with it."
)
_FAULT: Final = problem(
    Slug.OUTCOME_UNKNOWN,
    "This proxy failed while it served the request: find out whether it was carried out before you send it again.",
    status=500,
    error="proxy_internal_error",
)


def unmarked(_problem: Problem, _length: int) -> bytes:
    """Nothing is noted, and nothing added."""
    return b""


def _let_go_of_frames(content: StreamReader) -> None:
    """Let a body that broke off not keep the frames of who read it: they know it, too, and may hold megabytes."""
    if (fault := content.exception()) is not None:
        fault.__traceback__ = None


class Server(web.Server):
    """Makes such a connection for each client."""

    def __init__(
        self,
        serving: Serving,
        note: Note,
        limits: ClientLimits = _LIMITS,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> None:
        super().__init__(cast("Any", serving), **options)
        self._serving = serving
        self._note = note
        self._limits = limits

    def __call__(self) -> ServerConnection:
        """As web.Server, with our protocol."""
        return ServerConnection(self, self._serving, self._note, self._limits, loop=self._loop, **self._kwargs)


class ServerConnection(ReadingConnection):
    """The protocol of one connection; `options` are those of web.RequestHandler."""

    def __init__(
        self,
        manager: web.Server,
        serving: Serving,
        note: Note = unmarked,
        limits: ClientLimits = _LIMITS,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> None:
        super().__init__(manager, limits, **options)
        self._serving = serving
        self._note = note

    async def start(self) -> None:
        """In place of aiohttp's, which makes a task for each request: serve them in turn, in the one task of the connection."""
        try:
            while not (self._close or self._force_close):
                if self._queue:
                    if not await self._serve(self._queue.popleft()):
                        break
                    if self._queue or self._rest:
                        await asyncio.sleep(0)  # what is refused in here waits for nothing, and others have their turn
                elif self._refused is not None:
                    self._say(self._refused)
                    await self._linger()
                    break
                else:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        finally:
            self.force_close()
            self._inlet = None  # it knows this connection, too

    async def _serve(self, http: Incoming) -> bool:
        """Serve one request; whether another may follow."""
        if self._rest and not self._queue:
            self.data_received(b"")  # there is room for it now
        try:
            stays = await self._serving(http)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the client is told
            self._confess(http, exc)
            stays = False
        finally:
            _let_go_of_frames(http.content)
        if self._upgraded and self._inlet is None and not self._queue:  # what is in the queue ends with the one that asks
            self._upgraded = False  # no other protocol came of it: what is behind it is the next request
            self.data_received(b"")
        if stays and not http.content.is_eof():
            stays = await self._skip(http.content)
        elif not stays and (self._deaf or self._queue or self._rest or not self._is_at_rest()):
            await self._linger()
        self._idle_due = self._loop.time() + self.limits.idle_seconds
        return stays

    def _confess(self, http: Incoming, exc: Exception) -> None:
        """Tell of what went wrong in here, where there is somebody to tell, and nothing was said yet."""
        if isinstance(exc, UnreadableError):
            found = exc.problem
        elif isinstance(exc, web.RequestPayloadError):
            found = _BODY_UNREADABLE
        elif self.transport is None and isinstance(exc, OSError):
            return
        else:
            found = _FAULT
            _log.error("a fault of this proxy", exc_info=exc)
        if not http.begun:
            self._say(found, to_head=http.method == "HEAD")

    def _say(self, found: Problem, *, to_head: bool = False) -> None:
        """The response to what cannot be read, or to what went wrong in here; the connection ends with it."""
        if self.transport is not None:
            self.transport.write(refusal(found, self._note, to_head=to_head))

    async def _skip(self, content: StreamReader) -> bool:
        """Read what nobody asked for of a body; whether it came to its end in time, and whole."""
        try:
            with suppress(TimeoutError, web.RequestPayloadError):
                async with asyncio.timeout(self.limits.linger_seconds):
                    while not content.is_eof():
                        await content.readany()
        finally:
            _let_go_of_frames(content)
        return content.is_eof() and content.exception() is None

    def _is_at_rest(self) -> bool:
        """Whether the client has sent whole requests only, and no part of another."""
        return not self._framing.head_begun and (self._body is None or self._body.is_eof())

    async def _linger(self) -> None:
        """Say that this was all, and read on for a while without heed: otherwise a client that still sends would lose the answer.

        Over TLS that cannot be said without hanging up, so there only a client that goes on sending is listened to.
        """
        self._deaf = True
        transport = self.transport
        if transport is None:
            return
        plain = transport.can_write_eof()
        if plain:
            transport.write_eof()
        transport.resume_reading()
        self._ended = self._loop.create_future()
        until = self._loop.time() + self.limits.linger_seconds
        while not self._ended.done() and (left := until - self._loop.time()) > 0:
            self._heard = False
            await asyncio.wait([self._ended], timeout=left if plain else min(left, _PAUSE))
            if not (plain or self._heard):
                return
