"""One HTTP/1.1 connection to an upstream: bytes out, one answer in, and the exact knowledge of whether a byte has left.

Written for this proxy, on asyncio's transports and llhttp (through httptools), because its three promises are ones that a
general client does not make: a request is written once and never again, whoever hangs up; every byte of head and body
goes out and comes in as it stands; and the moment before the first byte is visible to the caller.

Limits of the answer's head are larger than those for requests: an over-long answer to a write that has happened is a loss.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import httptools

from idemproxy.core.message import Fields, field_values
from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import KIB, Timeouts

if TYPE_CHECKING:
    from idemproxy.core.message import Request

MAX_HEAD: Final = 256 * KIB
_HIGH_WATER: Final = 64 * KIB
_HEAD_ALONE: Final = -1
_SWITCHING_PROTOCOLS: Final = 101
_FIRST_FINAL: Final = 200
_LAST: Final = 599


class UnsureError(Exception):
    """The request, or part of it, has left, and no whole answer came back."""

    def __init__(self, outcome: Unsure) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """An answer up to its body. `length` is the declared Content-Length, None when the body is delimited otherwise."""

    status: int
    reason: bytes
    fields: Fields
    length: int | None


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time.

    Use: `begin`, `write_first`, perhaps `write`, then `head`, and `read` until it returns b"". Every failure after the first
    byte is an UnsureError. `reusable` tells whether another exchange may follow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.fresh = True
        """Whether this connection has not carried an exchange yet."""
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.idle_since = 0.0
        self._lost = False
        self._idle = True
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._plain_socket = -1
        self._readable: select.poll | None = None
        self._forget_exchange()

    def _forget_exchange(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._head: AnswerHead | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._until_close = False
        self._finished = False
        self._surplus = False
        self._keep_alive = False
        self._error: Unsure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._threshold = 0

    # The exchange, as its owner drives it.

    @property
    def usable(self) -> bool:
        """Whether an idle connection can carry a request: open, and with nothing to read.

        What is readable between two exchanges is the upstream's goodbye, or garbage. Looking costs one system call, and turns
        most of the races between its close and our write into a connection that is never used (`never_sent`).
        """
        if self._lost or self._transport.is_closing():
            return False
        return self._readable is None or not self._readable.poll(0)

    @property
    def reusable(self) -> bool:
        """Whether the exchange ended in such a way that the next one may follow on this connection."""
        return (
            self._finished
            and self._keep_alive
            and not self._surplus
            and not self._lost
            and not self._transport.is_closing()
            and self._transport.get_write_buffer_size() == 0
        )

    def begin(self, request: Request, timeouts: Timeouts) -> None:
        """Make ready for one exchange; nothing is written yet."""
        self._forget_exchange()
        self._idle = False
        self._bodiless = request.method == "HEAD"
        self._timeouts = timeouts
        now = self._loop.time()
        self._started = self._active = now
        self._unwritten = 0
        self._relaying = False
        self._timer = self._loop.call_at(now + min(timeouts.first_byte, timeouts.idle, timeouts.total), self._watch_the_clock)

    def write_first(self, data: bytes) -> None:
        """Write the first bytes of the request, now. Raises BrokenPipeError when it is certain that none of them left.

        On a plain socket they go to the kernel within this call, not when the event loop comes to it: nothing can happen between
        the caller's look at its lease and the first byte, and a refusal by the kernel proves that no byte was taken.
        """
        if self._lost or self._transport.is_closing():
            raise BrokenPipeError("the connection was closed before the first byte")
        self._active = self._loop.time()
        written = 0
        if self._plain_socket >= 0:
            try:
                written = os.write(self._plain_socket, data)
            except BlockingIOError:
                pass
            except OSError as exc:
                raise BrokenPipeError(f"the connection was closed before the first byte: {exc.strerror}") from exc
        if written < len(data):
            self._transport.write(data[written:])

    def write(self, data: bytes) -> None:
        """Write more of the request."""
        self._active = self._loop.time()
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the upstream takes more of the request, or has answered, or is gone."""
        if self._writing_paused and not self._lost and self._error is None:
            self._writable = self._loop.create_future()
            await self._writable

    async def head(self) -> AnswerHead:
        """The answer's head. Raises UnsureError."""
        await self._until(_HEAD_ALONE)
        assert self._head is not None  # noqa: S101 - _until raised otherwise
        return self._head

    async def read(self) -> bytes:
        """The next of the body, waiting for some; b"" at its end. Raises UnsureError when it is cut short."""
        await self._until(0)
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        return data

    async def read_whole(self, limit: int) -> bytes | None:
        """The whole body, or None, with nothing taken, when it is longer than `limit` bytes. Raises UnsureError."""
        await self._until(limit)
        return await self.read() if self._finished and self._buffered <= limit else None

    @property
    def finished(self) -> bool:
        """Whether the whole answer has arrived, read or not."""
        return self._finished

    def relay(self) -> None:
        """From here on the answer is passed on as it comes: the total timeout ends, silence still counts."""
        self._relaying = True

    def end(self) -> None:
        """Close the books on this exchange."""
        self._idle = True
        self.fresh = False
        self._timer.cancel()
        self._chunks.clear()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    # Waiting, and its limits.

    async def _until(self, threshold: int) -> None:
        """Return when the answer is whole, or its head is here with more than `threshold` unread bytes of its body."""
        while not self._finished and (self._head is None or self._buffered <= threshold):
            if self._error is not None:
                raise UnsureError(self._error)
            self._threshold = threshold
            if self._reading_paused:
                self._reading_paused = False
                self._transport.resume_reading()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._finished or self._error is not None or (self._head is not None and self._buffered > self._threshold):
            waiter.set_result(None)

    def _fail(self, outcome: Unsure) -> None:
        if self._error is None and not self._finished:
            self._error = outcome
            self._keep_alive = False
            self._wake()
            self._resume_writer()

    def _watch_the_clock(self) -> None:
        """One timer for each exchange: finds which limit is the next to be reached, and whether it has been."""
        now = self._loop.time()
        unwritten = self._transport.get_write_buffer_size()
        if unwritten and unwritten < self._unwritten:
            self._active = now  # the upstream is still taking the request
        self._unwritten = unwritten
        silence = self._timeouts.first_byte if self._head is None and not unwritten else self._timeouts.idle
        limits = [(self._active + silence, "the upstream was silent for too long", "http_response_timeout")]
        if not self._relaying:
            limits.append((self._started + self._timeouts.total, "the attempt took too long", "http_response_timeout"))
        at, reason, error = min(limits)
        if at <= now and not self._reading_paused:
            self._fail(Unsure(reason, error, 504))
            self._transport.abort()
            return
        self._timer = self._loop.call_at(now + silence if self._reading_paused else at, self._watch_the_clock)

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("sslcontext") is None:  # TLS has things to say of its own at any time
            self._plain_socket = socket.fileno()
            self._readable = select.poll()
            self._readable.register(self._plain_socket, select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._idle or self._finished:
            self._surplus = True  # an answer that nobody asked for: this connection can no longer be trusted
            self._transport.close()
            return
        self._active = self._loop.time()
        if self._head is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._surplus = True  # on_headers_complete has failed the exchange already
        except httptools.HttpParserError as exc:
            if not self._finished:
                self._fail(Unsure(f"the upstream's answer is not valid HTTP: {exc}", "http_protocol_error"))
            self._surplus = True
        if self._head is None and self._head_bytes > MAX_HEAD:
            self._fail(Unsure(f"the head of the upstream's answer exceeds {MAX_HEAD} bytes", "http_response_header_section_size"))
        if self._error is not None:
            self._transport.abort()
            return
        if self._buffered > max(self._threshold, _HIGH_WATER) and not self._finished:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The upstream has said all: an answer that is delimited by the end of the connection is whole now."""
        if self._until_close and self._head is not None:
            self._finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was not whole by now never will be."""
        self._lost = True
        if not self._idle:
            self._fail(
                Unsure(
                    "the connection ended before the answer was whole"
                    + (f": {getattr(exc, 'strerror', None) or exc}" if exc else "")
                )
            )
        self._resume_writer()

    def pause_writing(self) -> None:
        """The upstream takes the request more slowly than it comes."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The upstream has caught up."""
        self._active = self._loop.time()
        self._writing_paused = False
        self._resume_writer()

    def _resume_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # What llhttp tells.

    def on_message_begin(self) -> None:
        """A second message in one exchange is one too many."""
        if self._finished:
            self._surplus = True

    def on_status(self, reason: bytes) -> None:
        """The reason phrase, perhaps in pieces."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; trailers are dropped, as a proxy may (RFC 9110, section 6.5.1)."""
        if self._head is None:
            self._fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is whole: find out how the body ends."""
        status = self._parser.get_status_code()
        if status == _SWITCHING_PROTOCOLS:
            self._fail(Unsure("the upstream switched protocols unasked", "http_protocol_error"))
            return
        if self._finished or status < _FIRST_FINAL:
            return  # an informational answer: the final one follows
        if status > _LAST:
            self._fail(Unsure(f"the upstream's status {status} is not valid", "http_protocol_error"))
            return
        fields = tuple(self._fields)
        lengths = field_values(fields, b"content-length")
        codings = field_values(fields, b"transfer-encoding")
        bodiless = self._bodiless or status in {204, 304}
        if not bodiless and codings and [coding.lower() for coding in codings] != [b"chunked"]:
            self._fail(Unsure("the upstream used a transfer coding other than chunked", "http_response_transfer_coding"))
            return
        self._until_close = not (bodiless or lengths or codings)
        self._keep_alive = self._parser.should_keep_alive() and not self._until_close
        self._head = AnswerHead(status, self._reason, fields, int(lengths[0]) if lengths else None)
        if self._bodiless:
            self._finish()  # llhttp would wait for the body that an answer to HEAD only announces

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._finished:
            self._surplus = True
        else:
            self._chunks.append(data)
            self._buffered += len(data)

    def on_message_complete(self) -> None:
        """The message is whole; after an informational one, the next begins with an empty head."""
        if self._head is None:
            self._reason = b""
            self._fields.clear()
        elif not self._finished:
            self._finish()

    def _finish(self) -> None:
        self._finished = True
        self._wake()
