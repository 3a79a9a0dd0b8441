"""The receiving half of a connection to an upstream: what comes, who waits for it, and for how long."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import KIB, Timeouts
from idemproxy.proxy.answer_reader import AnswerHead, AnswerReader
from idemproxy.proxy.outlet import untaken
from idemproxy.server.goodbye import held_back, in_order

if TYPE_CHECKING:
    import ssl

_HIGH_WATER: Final = 64 * KIB


class UnsureError(Exception):
    """The request, or part of it, has left, and no whole answer came back."""

    def __init__(self, outcome: Unsure) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class ReceivingConnection(asyncio.Protocol):
    """A connection on which one answer comes at a time; its other half says when it is due, and takes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts) -> None:
        self._loop = loop
        self._timeouts = timeouts
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._plain_socket = -1
        self._tls: ssl.SSLObject | None = None
        self._readable = select.poll()
        self._lost = False
        self._idle = True
        self._answer = AnswerReader(to_head=False)
        self._waiter: asyncio.Future[None] | None = None
        self._threshold = 0
        """More of the body than so many bytes is enough to wake whoever waits."""
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._active = 0.0
        """When something came last, or was taken."""
        self._untaken = 0
        self._relaying = False
        self._uploading = False

    def fail(self, outcome: Unsure) -> None:
        """Give the exchange up, for a reason of this side's."""
        self._fail(outcome)
        self._transport.abort()

    # Waiting.

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

    # Time.

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
        if self._idle:
            self._answer.leave()
        else:
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
