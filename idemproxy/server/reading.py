"""The reading half of a connection: what comes on it, as requests that wait to be served.

What comes goes through `Framing` to aiohttp's parser, one head or body at a time, and not faster than it is asked for.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, Final

from aiohttp import StreamReader, hdrs, web
from aiohttp.http import RawRequestMessage

from idemproxy.core.problem import Problem, Slug, problem
from idemproxy.server.framing import UNREADABLE, ClientLimits, Framing, UnreadableError
from idemproxy.server.goodbye import held_back, in_order
from idemproxy.server.incoming import Incoming

_INLET: Final = 64 * 1024
"""How much of what was diverted, or cannot be read yet, may wait, in bytes, before the client is stopped; it may be exceeded."""

_QUEUE: Final = 32
"""How many requests of a client that does not wait for its answers are read before they are served."""


def _slow(limits: ClientLimits) -> Problem:
    detail = f"The request's head was not whole within {limits.head_seconds:g} s, so nothing was done with it."
    return problem(Slug.BAD_REQUEST, detail, status=408)


class ReadingConnection(web.RequestHandler):
    """A connection that reads; `options` are those of web.RequestHandler, of which only the beginning and the end are left."""

    def __init__(
        self,
        manager: web.Server,
        limits: ClientLimits,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> None:
        super().__init__(
            manager,
            keepalive_timeout=0,  # the clock is ours, and so are the limits, which come first
            max_line_size=limits.head,
            max_field_size=limits.head,
            max_headers=limits.head,
            **options,
        )
        self.limits = limits
        self.remote = ""
        """The client's address."""
        self.secure = False
        """Whether this is TLS."""
        self._framing = Framing(limits)
        self._queue: deque[Incoming] = deque()
        """What has arrived, and is not served yet."""
        self._rest = b""
        """What came, and cannot be read yet."""
        self._body: StreamReader | None = None
        """Of the request that arrived last; perhaps not all of it is here."""
        self._refused: Problem | None = None
        """Why what came last is not read; to be told when all that is queued has been served."""
        self._deaf = False
        """Whether nothing more is read: behind what was not understood, anything may be taken for a request."""
        self._head_due: float | None = None
        """When the head that has begun, or with which the connection is to begin, must be whole; on the loop's clock."""
        self._idle_due = 0.0
        """When the client must have begun with another request."""
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        """Whether anything came since this was last False, and was not read."""
        self._ended: asyncio.Future[None] | None = None
        """Of a connection that nobody reads any more: its end."""
        self._tls: ssl.SSLObject | None = None
        self._inlet: StreamReader | None = None
        """Where the client's bytes go when the connection has left HTTP."""

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and watch the clock: one timer for each connection, put off as it fires, and not for each request."""
        super().connection_made(transport)
        self.secure = self.ssl_context is not None
        peer = self.peername
        self.remote = str(peer[0]) if isinstance(peer, tuple) else ""
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Read what came, or what was left when there was enough of it (`data` is empty then)."""
        if self._inlet is not None:
            self._inlet.feed_data(data)
            return
        if self._deaf or self._force_close or self._close:
            self._heard = True
            return
        if not data:
            self._parse(data, heads=0)
        if self._rest:
            data, self._rest = self._rest + data, b""
        # Not while there are enough requests, or enough of a body, that nobody took; nor what may be of another protocol.
        while data and not (self._refused or self._reading_paused or self._upgraded or len(self._queue) >= _QUEUE):
            data = self._read(data)
        self._rest = data
        if len(data) > _INLET:
            self._pause_reading_for_buffer()
        elif self._buffer_paused:
            self._resume_reading_for_buffer()
        if self._head_due is None and self._framing.head_begun:
            self._expect_head()

    def eof_received(self) -> bool | None:  # type: ignore[override] # the base keeps to one of the two answers of asyncio.Protocol
        """A client that sends no more has left; but a connection that has left HTTP stays open the other way, if it is no TLS."""
        if self._inlet is None:
            super().eof_received()
            return None
        if in_order(self._tls):
            self._inlet.feed_eof()
        return self._tls is None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell whoever serves a request, or reads what nobody heeds; what was said before an end in order still goes on."""
        if self._inlet is not None and self._tls is not None:
            self._take_held_back(self._inlet)
            self.eof_received()
        is_reset = exc is not None and self._tls is None  # within TLS all was said before its goodbye
        if self._inlet is not None and self._inlet.is_eof() and not is_reset and self._task_handler is not None:
            self._loop.call_later(self.limits.linger_seconds, self._task_handler.cancel)
            self._task_handler = None  # or aiohttp would cancel it at once
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(exc or ConnectionResetError("the client is gone"))
        # They know this connection, too; what they hold, perhaps megabytes, would wait for a search for cycles, which is rare.
        self._body, self._rest = None, b""
        self._queue.clear()
        super().connection_lost(exc)

    async def drain(self) -> None:
        """Wait until the client takes more, or is gone. Raises ConnectionError when it went in disorder."""
        if self.writing_paused and self.transport is not None:
            await self._drain_helper()

    # Reading.

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """As aiohttp's, which at the end of every body would resume what was never paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        """Where aiohttp takes up reading again, of a connection that has left HTTP too."""
        inlet = self._inlet
        ended = inlet is not None and not inlet.is_eof() and self._take_held_back(inlet)  # its end resumes reading once more
        if not self._reading_paused:
            super()._resume_transport_reading()
        if ended and self.transport is not None:
            self.eof_received()
            self.transport.close()

    def _take_held_back(self, inlet: StreamReader) -> bool:
        """Hand on what is here; whether the goodbye was behind it."""
        while data := held_back(self._tls):
            inlet.feed_data(data)
        return data is None

    def divert(self) -> StreamReader:
        """Leave HTTP: what the client sent behind the request that is being served, and all that comes, unread here."""
        self._inlet = inlet = StreamReader(self, _INLET, loop=self._loop)
        self._tls = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        self._upgraded = True  # what is paused from now on is the transport alone, and no parser
        rest, self._rest = self._rest, b""
        inlet.feed_data(rest)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        return inlet

    def _read(self, data: bytes) -> bytes:
        """Read one head, or what there is of a body; what is left."""
        framing = self._framing
        try:
            part, rest = framing.split(data)
        except UnreadableError as exc:
            self._refuse(exc.problem)
            return b""
        if part:
            self._parse(part, heads=framing.head_ended)
        if framing.between and not (self._reading_paused or self._body is None or self._body.is_eof()):
            self._refuse(UNREADABLE)  # two readings of one request
        return rest

    def _parse(self, part: bytes, heads: int) -> None:
        """Let aiohttp parse some of a head or of a body, with the end of so many `heads` in it: one or none."""
        parser = self._parser
        assert parser is not None  # noqa: S101 - the connection is there
        try:
            messages, upgraded, _ = parser.feed_data(part)
        except Exception:  # noqa: BLE001 - also what the parser does not mean to raise, for some absolute targets
            self._refuse(UNREADABLE)
            return
        if upgraded:
            parser.set_upgraded(False)  # that is ours to decide
        if len(messages) != heads:
            self._refuse(UNREADABLE)  # two readings of one request
        elif messages:
            parser.message_consumed()  # we count them
            self._begin(*messages[0])

    def _begin(self, message: RawRequestMessage, body: StreamReader) -> None:
        """Find out what comes behind the head that was just read, and let its request be served."""
        declared = message.headers.get(hdrs.CONTENT_LENGTH)
        length = None if declared is None else int(declared)
        if message.chunked:
            self._framing.chunked()
        elif not body.is_eof():
            self._framing.sized(length or 0)
        elif message.upgrade:
            self._upgraded = True  # what comes may be of another protocol, also one that aiohttp does not know
        self._head_due = None
        self._body = body
        self._queue.append(Incoming(message, body, length, self))
        self._wake()

    def _refuse(self, found: Problem) -> None:
        """Let what came be unreadable, for this reason; a body that it was part of ends there, and whoever reads it is told."""
        if self._deaf:
            return
        self._refused = found
        self._deaf = True
        if self._body is not None and not self._body.is_eof():
            if self._queue:
                self._queue.pop()  # nobody has begun with that request yet
            self._body.set_exception(web.RequestPayloadError("the body is wrongly framed"))
            self._body.feed_eof()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Time.

    def _expect_head(self) -> None:
        """From now on a head is due."""
        self._head_due = self._loop.time() + self.limits.head_seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._head_due, self._watch_the_clock)

    def _watch_the_clock(self) -> None:
        """End a connection whose client takes too long, or look again later."""
        self._timer = None
        if self._force_close or self.transport is None:
            return
        now = self._loop.time()
        due = self._idle_due if self._head_due is None else self._head_due
        if self._waiter is None or self._waiter.done():  # a request is being served, and what is behind it is not asked for
            due = now + (self.limits.idle_seconds if self._head_due is None else self.limits.head_seconds)
            self._head_due = None if self._head_due is None else due
        elif due <= now:
            if self._framing.head_begun:
                self._refuse(_slow(self.limits))
            else:
                self.force_close()
            return
        self._timer = self._loop.call_at(due, self._watch_the_clock)
