"""One HTTP/1.1 connection to an upstream: bytes out, one answer in, and the exact knowledge of whether a byte has left.

Written for this proxy, on asyncio's transports and llhttp (through httptools), because its three promises are ones that a
general client does not make: a request is written once and never again, whoever hangs up; every byte of head and body
goes out and comes in as it stands; and the moment before the first byte is visible to the caller.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from idemproxy.proxy.receiving import ReceivingConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from idemproxy.core.message import Request
    from idemproxy.core.policy import Timeouts
    from idemproxy.proxy.answer_reader import AnswerHead

_HEAD_ALONE: Final = -1


class Connection(ReceivingConnection):
    """A connection that carries one exchange at a time.

    Use: `begin`, `write_first`, perhaps `write`, then `head`, and `read` until it returns b"". Every failure after the first
    byte is an UnsureError. `reusable` tells whether another exchange may follow.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeouts: Timeouts) -> None:
        super().__init__(loop, timeouts)
        self._soonest = min(timeouts.first_byte, timeouts.idle, timeouts.total)
        self.fresh = True
        """Whether this connection has not carried an exchange yet."""
        self.idle_since = 0.0
        self._hangs_up = False

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

    def end(self) -> None:
        """Close the books on this exchange."""
        self._idle = True
        self.fresh = False
        self._answer.on_interim = None
        if self._lost:
            self._answer.leave()

    def abort(self) -> None:
        """Drop the connection at once, unless it is about to end in order."""
        if not self._hangs_up:
            self._transport.abort()
