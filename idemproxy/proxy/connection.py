"""One HTTP/1.1 connection to an upstream: bytes out, one answer in, and the exact knowledge of whether a byte has left.

Written for this proxy, on asyncio's transports and llhttp (through httptools), because its three promises are ones that a
general client does not make: a request is written once and never again, whoever hangs up; every byte of head and body
goes out and comes in as it stands; and the moment before the first byte is visible to the caller.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import KIB, Timeouts
from idemproxy.proxy.answer_reader import AnswerHead, AnswerReader
from idemproxy.proxy.outlet import untaken
from idemproxy.server.goodbye import held_back, in_order

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine
    from typing import Any

    from idemproxy.core.message import Request

_HIGH_WATER: Final = 64 * KIB
_HEAD_ALONE: Final = -1


class UnsureError(Exception):
    """The request, or part of it, has left, and no whole answer came back."""

    def __init__(self, outcome: Unsure) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Connection(asyncio.Protocol):
    """A connection that carries one exchange at a time.

    Use: `begin`, `write_first`, perhaps `write`, then `head`, and `read` until it returns b"". Every failure after the first
    byte is an UnsureError. `reusable` tells whether another exchange may follow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts) -> None:
        self._loop = loop
        self._timeouts = timeouts
        self._soonest = min(timeouts.first_byte, timeouts.idle, timeouts.total)
        self.fresh = True
        """Whether this connection has not carried an exchange yet."""
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.idle_since = 0.0
        self._lost = False
        self._hangs_up = False
        self._idle = True
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._plain_socket = -1
        self._tls: ssl.SSLObject | None = None
        self._readable = select.poll()
        self._answer = AnswerReader(to_head=False)
        self._waiter: asyncio.Future[None] | None = None
        self._threshold = 0
        self._timer: asyncio.TimerHandle | None = None

    # The exchange, as its owner drives it.

    @property
    def usable(self) -> bool:
        """Whether an idle connection can carry a request: open, and with nothing to read.

        What is readable between two exchanges is the upstream's goodbye, or garbage. Looking costs one system call, and turns
        most of the races between its close and our write into a connection that is never used (`never_sent`). Over TLS it may be
        a harmless message of TLS itself: that costs a handshake.
        """
        if self._lost or self._transport.is_closing():
            return False
        return not self._readable.poll(0)

    @property
    def reusable(self) -> bool:
        """Whether the exchange ended in such a way that the next one may follow on this connection."""
        return (
            self._answer.finished
            and self._answer.keep_alive
            and not self._answer.surplus
            and not self._lost
            and not self._transport.is_closing()
            and self._transport.get_write_buffer_size() == 0
        )

    def begin(self, request: Request) -> None:
        """Make ready for one exchange; nothing is written yet."""
        self._answer.next(to_head=request.method == "HEAD")
        self._idle = False
        self._started = self._active = now = self._loop.time()
        self._untaken = 0
        self._relaying = False
        self._uploading = False
        due = now + self._soonest
        if self._timer is None or self._timer.when() > due:
            self._look_at(due)

    def write_first(self, data: bytes) -> None:
        """Write the first bytes of the request, now. Raises BrokenPipeError when it is certain that none of them left.

        On a plain socket they go to the kernel within this call, not when the event loop comes to it: nothing can happen between
        the caller's look at its lease and the first byte, and a refusal by the kernel proves that no byte was taken.
        """
        if self._lost or self._transport.is_closing():
            raise BrokenPipeError("the connection was closed before the first byte")
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

    def expect(self, *, offered: bytes | None, interim: Callable[[AnswerHead], None] | None) -> None:
        """What else may come than an answer: another protocol of those `offered`, and before it interim answers, for `interim`.

        To be told before anything can have come, that is at once after the first write.
        """
        self._answer.offered = offered
        self._answer.on_interim = interim

    def write(self, data: bytes) -> None:
        """Write more of the request; into the void when the connection is lost, as `head` and `read` will tell."""
        self._active = self._loop.time()
        if not self.lost:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the upstream takes more of the request, or has answered, or is gone; to be done before each `write`.

        What it has said already is heard first: of a write to an upstream that has hung up, an unread answer would be the victim.
        """
        if self._writing_paused and not self._lost and self._answer.error is None:
            self._writable = self._loop.create_future()
            await self._writable
        elif self._answer.finished:
            await asyncio.sleep(0)  # that a connection over TLS is lost is told in the next turn of the event loop
        # Behind the end of a tunnel's other way nothing more comes, and its end stays readable for ever.
        while not (self.lost or self._reading_paused or self._answer.finished) and self._readable.poll(0):  # noqa: ASYNC110 - only the kernel knows
            await asyncio.sleep(0)

    def head(self) -> Coroutine[Any, Any, AnswerHead]:
        """The answer's head. Raises UnsureError."""
        self._threshold = _HEAD_ALONE
        return self._until()

    async def read(self) -> bytes:
        """The next of the body, waiting for some; b"" at its end. Raises UnsureError when it is cut short."""
        self._threshold = 0
        if not self._is_enough():
            await self._until()
        return self._answer.take()

    async def read_whole(self, limit: int) -> bytes | None:
        """The whole body, or None, with nothing taken, when it is longer than `limit` bytes. Raises UnsureError."""
        self._threshold = limit
        if not self._is_enough():
            await self._until()
        return self._answer.take() if self._answer.finished and self._answer.buffered <= limit else None

    @property
    def finished(self) -> bool:
        """Whether the whole answer has arrived, read or not."""
        return self._answer.finished

    @property
    def switched(self) -> bool:
        """Whether the upstream has left HTTP for a protocol that it was offered."""
        return self._answer.switched

    def relay(self) -> None:
        """From here on the answer is passed on as it comes: the total timeout ends, silence still counts."""
        self._relaying = True

    def upload(self, *, under_way: bool) -> None:
        """While the request is still coming from the client, the upstream's silence is no fault of its own."""
        self._uploading = under_way
        self._active = self._loop.time()

    def tunnel(self) -> None:
        """After a 101: from here on `write` and `read` carry another protocol, which has no limits of time.

        `drain` waits until all that was written is on its way. A peer that vanishes without a word is found out by TCP.
        """
        self._look_at(None)
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def write_end(self) -> bool:
        """Say that nothing more is written; False where that cannot be said without closing: TLS has no half to leave open."""
        if self._plain_socket >= 0 and not self.lost:
            self._transport.write_eof()
            return True
        self.close()
        return False

    def close(self) -> None:
        """Hang up when all that was written has left, as it soon does: TLS ends with a goodbye, for which there is a limit."""
        self._hangs_up = True
        self._transport.close()

    @property
    def lost(self) -> bool:
        """Whether nothing can be written any more."""
        return self._lost or self._transport.is_closing()

    def fail(self, outcome: Unsure) -> None:
        """Give the exchange up, for a reason of this side's."""
        self._fail(outcome)
        self._transport.abort()

    def end(self) -> None:
        """Close the books on this exchange."""
        self._idle = True
        self.fresh = False
        self._answer.on_interim = None

    def abort(self) -> None:
        """Drop the connection at once, unless it is about to end in order."""
        if not self._hangs_up:
            self._transport.abort()

    # Waiting, and its limits.

    async def _until(self) -> AnswerHead:
        """The head, when there is enough of the answer."""
        answer = self._answer
        while not self._is_enough():
            if answer.error is not None:
                raise UnsureError(answer.error)
            if self._reading_paused:
                self._resume_reading()
                continue
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        assert answer.head is not None  # noqa: S101 - it is not enough otherwise
        return answer.head

    def _resume_reading(self) -> None:
        self._reading_paused = False
        while not self._reading_paused and (data := held_back(self._tls)):
            self.data_received(data)
        if not self._reading_paused:
            self._transport.resume_reading()
            if data is None:
                self.eof_received()
                self._transport.close()

    def _is_enough(self) -> bool:
        """Whether the answer is whole, or its head is here with more of its body unread than is waited for."""
        answer = self._answer
        return answer.finished or (answer.head is not None and answer.buffered > self._threshold)

    def _wake(self) -> None:
        """Let go whoever waits for the answer, if it is there or never will be, or for the upstream to take the request."""
        error, waiter = self._answer.error, self._waiter
        if waiter is not None and not waiter.done() and (error is not None or self._is_enough()):
            waiter.set_result(None)
        if error is not None:
            self._resume_writer()

    def _fail(self, outcome: Unsure) -> None:
        self._answer.fail(outcome)
        self._wake()

    def _look_at(self, when: float | None) -> None:
        """Set the timer; None: there is to be none."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self._watch_the_clock)

    def _watch_the_clock(self) -> None:
        """Find which limit is the next to be reached, and whether it has been.

        One timer for each connection: it stays when an exchange ends, and finds the next one when it is due, or none. A timer
        that is set for each exchange costs each of them, and is seldom due.
        """
        self._timer = None
        if self._idle:
            return
        now = self._loop.time()
        unwritten, left = self._transport.get_write_buffer_size(), untaken(self._transport)
        if unwritten and left < self._untaken:
            self._active = now  # the upstream is still taking the request
        self._untaken = left
        silence = self._timeouts.first_byte if self._answer.head is None and not unwritten else self._timeouts.idle
        limits = [(self._active + silence, "the upstream was silent for too long", "http_response_timeout")]
        if not self._relaying:
            limits.append((self._started + self._timeouts.total, "the attempt took too long", "http_response_timeout"))
        at, reason, error = min(limits)
        waits_for_us = self._reading_paused or (self._uploading and not unwritten)
        if at <= now and not waits_for_us:
            self.fail(Unsure(reason, error, 504))
            return
        self._look_at(now + silence if waits_for_us else at)

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        descriptor = transport.get_extra_info("socket").fileno()
        self._readable.register(descriptor, select.POLLIN)
        self._tls = transport.get_extra_info("ssl_object")
        if self._tls is None:
            self._plain_socket = descriptor
        else:
            self._transport.set_write_buffer_limits(_HIGH_WATER)  # eight times as much else: what is given cannot be taken back

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        answer = self._answer
        if self._idle or answer.finished:
            answer.surplus = True  # an answer that nobody asked for: this connection can no longer be trusted
            self._transport.close()
            return
        self._active = self._loop.time()
        answer.feed(data)
        if answer.error is not None:
            self._transport.abort()
        elif answer.buffered > _HIGH_WATER and answer.buffered > self._threshold and not answer.finished:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The upstream says no more; in a tunnel it may still listen."""
        if not in_order(self._tls):
            return False  # the end may be anybody's on the way: what is delimited by it is not whole, as `connection_lost` tells
        self._answer.end_of_connection()
        self._wake()
        return self._answer.switched and self._plain_socket >= 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was not whole by now never will be."""
        self._lost = True
        self._look_at(None)
        if not self._idle:
            self._hear_last_words()
            why = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or str(exc or "")  # TLS has reasons
            self._fail(Unsure("the connection ended before the answer was whole" + (f": {why}" if why else "")))
        self._resume_writer()

    def _hear_last_words(self) -> None:
        """Read what is here, where the transport failed in writing before it read that, or dropped it as reading was paused.

        Not of an answer that was given up: its upstream may go on talking for ever.
        """
        answer = self._answer
        with suppress(OSError):
            while not answer.finished and answer.error is None and (data := self._last_piece()):
                answer.feed(data)
        if self._plain_socket < 0 and in_order(self._tls):
            answer.end_of_connection()

    def _last_piece(self) -> bytes:
        if self._plain_socket < 0:
            return held_back(self._tls) or b""
        return b"" if self._reading_paused else os.read(self._plain_socket, _HIGH_WATER)

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
