"""What both listeners hand to the event loop: aiohttp's connection, but for what it cannot read and for what goes wrong in here.

aiohttp would log the line that it could not read, which may be the one with the key or with credentials, and echo it.
Here either is answered with a problem document and the end of the connection, and only faults of ours are logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable
from typing import Any, Final

from aiohttp import StreamReader, web
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo  # what aiohttp itself puts behind the requests when it cannot read on

from idemproxy.core.problem import Problem, Slug, problem
from idemproxy.server.framing import UNREADABLE, ClientLimits, Framing, UnreadableError
from idemproxy.server.goodbye import held_back, in_order
from idemproxy.server.refusal import Note, Refusal

_log = logging.getLogger("idemproxy")

_CLIENTS_FAULTS: Final = (HttpProcessingError, web.RequestPayloadError)

_INLET: Final = 64 * 1024
"""How much of what was diverted may wait unread, in bytes, before the client is stopped; it may be exceeded twofold."""

_PAUSE: Final = 0.25
"""Seconds without a byte after which a client that was refused counts as one that has stopped sending."""

_LIMITS: Final = ClientLimits()

_BODY_UNREADABLE: Final = problem(
    Slug.BAD_REQUEST, "The request body is broken off or wrongly framed, so nothing was done with it."
)
_UNEXPECTED: Final = problem(
    Slug.BAD_REQUEST, "The field Expect knows 100-continue alone: send the request without it.", status=417
)
_FAULT: Final = problem(
    Slug.OUTCOME_UNKNOWN,
    "This proxy failed while it served the request: find out whether it was carried out before you send it again.",
    status=500,
    error="proxy_internal_error",
)


def _slow(limits: ClientLimits) -> Problem:
    detail = f"The request's head was not whole within {limits.head_seconds:g} s, so nothing was done with it."
    return problem(Slug.BAD_REQUEST, detail, status=408)


def unmarked(_problem: Problem, _length: int) -> bytes:
    """Nothing is noted, and nothing added."""
    return b""


class Server(web.Server):
    """Makes such a connection for each client."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Any],
        note: Note,
        limits: ClientLimits = _LIMITS,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> None:
        super().__init__(handler, **options)
        self._note = note
        self._limits = limits

    def __call__(self) -> ServerConnection:
        """As web.Server, with our protocol."""
        return ServerConnection(self, self._note, self._limits, loop=self._loop, **self._kwargs)


class ServerConnection(web.RequestHandler):
    """The protocol of one connection; `options` are those of web.RequestHandler.

    What comes goes through `Framing` to aiohttp's parser, one head or body at a time, and not faster than it is asked for.
    """

    def __init__(
        self,
        manager: web.Server,
        note: Note = unmarked,
        limits: ClientLimits = _LIMITS,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> None:
        super().__init__(
            manager,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=limits.linger_seconds,
            max_line_size=limits.head,  # ours come first
            max_field_size=limits.head,
            max_headers=limits.head,
            **options,
        )
        self.limits = limits
        self._note = note
        self._framing = Framing(limits)
        self._rest = b""
        """What came, and cannot be read yet."""
        self._body: StreamReader | None = None
        """Of the request that arrived last; perhaps not all of it is here."""
        self._refused: Problem | None = None
        """Why what came last is not read."""
        self._deaf = False
        """Whether nothing more is read: behind what was not understood, anything may be taken for a request."""
        self._head_due: float | None = None
        """When the head that has begun, or with which the connection is to begin, must be whole; on the loop's clock."""
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
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Read what came, or what was left when there was enough of it (`data` is empty then)."""
        if self._inlet is not None:
            self._inlet.feed_data(data)
            return
        if self._deaf or self._force_close:
            self._heard = True
            return
        if not data:
            self._parse(data)
        data, self._rest = self._rest + data, b""
        while data and self._may_read():
            data = self._read(data)
        self._rest = data
        if self._framing.head_begun and self._head_due is None:
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
        super().connection_lost(exc)

    # Reading.

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
        tail, self._message_tail, self._rest = self._message_tail + self._rest, b"", b""
        if tail:
            inlet.feed_data(tail)
        if self._buffer_paused:
            self._resume_reading_for_buffer()
        return inlet

    def _may_read(self) -> bool:
        """Whether what is here may be read now: not while there are enough requests, or enough of a body, that nobody took."""
        return not (self._deaf or self._reading_paused or len(self._messages) >= self._max_msg_queue_size)

    def _read(self, data: bytes) -> bytes:
        """Read one head, or what there is of a body; what is left."""
        if self._upgraded:
            super().data_received(data)  # keeps it until it is decided whose it is
            return b""
        try:
            part, rest = self._framing.split(data)
        except UnreadableError as exc:
            self._refuse(exc.problem)
            return b""
        known = self._request_count
        if part:
            self._parse(part)
        if not self._deaf and self._framing.head_ended:
            self._begin(whole=self._request_count == known + 1)
        elif self._framing.between and not self._reading_paused and self._body is not None and not self._body.is_eof():
            self._refuse(UNREADABLE)  # two readings of one request
        return rest

    def _begin(self, *, whole: bool) -> None:
        """Find out what comes behind the head that was just read."""
        message, body = self._messages[-1] if whole else (None, None)
        if not isinstance(message, RawRequestMessage) or body is None:
            self._refuse(UNREADABLE)
            return
        self._head_due = None
        self._body = body
        if message.chunked:
            self._framing.chunked()
        elif not body.is_eof():
            self._framing.sized(int(message.headers["Content-Length"]))
        elif message.upgrade:
            self._upgraded = True  # what comes may be of another protocol, also one that aiohttp does not know

    def _parse(self, data: bytes) -> None:
        """Let aiohttp parse; a body that turns out to be unreadable ends there.

        aiohttp's fast parser tells the connection, but not whoever is reading that body: they would wait for ever.
        """
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - the parser's own, for some absolute targets; the event loop would log it, and not answer
            super().data_received(b"")  # the parser stays broken, and now says so as aiohttp expects
        if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
            self._hear_no_more()

    def _hear_no_more(self) -> None:
        """What came last cannot be read, and stands as such behind the requests; a body that it was part of ends there."""
        self._deaf = True
        if self._body is not None and not self._body.is_eof():
            if len(self._messages) > 1:
                del self._messages[-2]  # nobody has begun with that request yet
            self._body.set_exception(web.RequestPayloadError("the body is wrongly framed"))
            self._body.feed_eof()

    def _refuse(self, found: Problem) -> None:
        """Let what came be unreadable, for this reason."""
        self._refused = found
        self._messages.append((_ErrInfo(400, HttpProcessingError(), ""), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._hear_no_more()

    # Time.

    def _expect_head(self) -> None:
        """From now on a head is due."""
        self._head_due = self._loop.time() + self.limits.head_seconds
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self._keepalive_handle = self._loop.call_at(self._head_due, self._process_keepalive)

    def _process_keepalive(self) -> None:
        """In place of aiohttp's, whose timer this is: end a connection whose client takes too long, or look again later."""
        self._keepalive_handle = None
        if self._force_close or self.transport is None:
            return
        now = self._loop.time()
        due = self._next_keepalive_close_time if self._head_due is None else self._head_due
        if self._waiter is None or self._waiter.done():  # a request is being served, and what is behind it is not asked for
            due = now + (self.limits.idle_seconds if self._head_due is None else self.limits.head_seconds)
            self._head_due = None if self._head_due is None else due
        elif due <= now:
            if self._framing.head_begun:
                self._refuse(_slow(self.limits))
            else:
                self.force_close()
            return
        self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)

    # Answers of this connection's own.

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - holds what could not be read
    ) -> web.StreamResponse:
        """The response to what cannot be read, or to what went wrong in here; the connection ends with it."""
        exc = exc or sys.exception()
        has_left = self.transport is None and isinstance(exc, OSError)
        if status < 500:
            found = self._refused or UNREADABLE
        elif isinstance(exc, web.RequestPayloadError):
            found = _BODY_UNREADABLE
        else:
            found = _FAULT
            if not has_left:
                _log.error("a fault of this proxy", exc_info=exc)
        if has_left or request.writer.output_size:
            raise ConnectionResetError("nobody is there to answer, or the answer has begun already")
        return Refusal(found, self._note)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write a response. The one of its own in which aiohttp echoes a field is replaced."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = Refusal(_UNEXPECTED, self._note)
        if self._upgraded and not self._messages and self._inlet is None and self._parser is not None:
            self._read_on()
        finished = await super().finish_response(request, resp, start_time)
        if not resp.keep_alive and (self._deaf or self._messages or self._rest or not self._is_at_rest()):
            await self._linger()
            if self._body is not None and not self._body.is_eof():
                self._body.feed_eof()  # or aiohttp would linger once more
        return finished

    def _is_at_rest(self) -> bool:
        """Whether the client has sent whole requests only, and no part of another."""
        return not self._framing.head_begun and (self._body is None or self._body.is_eof())

    def _read_on(self) -> None:
        """No other protocol came of it: what is behind the request with `Upgrade` is the next request."""
        assert self._parser is not None  # noqa: S101 - the connection is there
        self._parser.set_upgraded(False)
        self._upgraded = False
        tail, self._message_tail = self._message_tail, b""
        self._rest = tail + self._rest
        self._resume_reading_if_drained() if self._buffer_paused else self.data_received(b"")

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

    def log_exception(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - aiohttp's signature
        """Log what aiohttp has to say of a fault; a body that breaks when nobody reads it any more is none."""
        if not isinstance(options.get("exc_info"), _CLIENTS_FAULTS):
            super().log_exception(*args, **options)
