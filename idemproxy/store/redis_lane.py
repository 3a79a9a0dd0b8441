"""A lane: one connection that many callers share, and that lives once.

Commands that are submitted in one turn of the event loop leave in one write, and replies are handed out in the order of
the commands: that is what makes a command cost microseconds (a pooled connection per command costs some hundred and fifty).
redis-py makes the connection; from then on the lane itself reads and writes it.
The price is that one stuck command blocks all behind it, so every command has a deadline, and the first one that passes
ends the lane: all who wait are told that their reply is lost, and the connection is dropped.

Where writes are to be confirmed (redis_durability), one question for that follows what was sent, and the next one not before its
answer. The replies to writes are given out after it, all others as they come; but the server answers nothing on this connection
while it waits for replicas. So when they are away, it is asked to wait for no longer than they used to need.

A caller that is cancelled abandons its future only. Its command is sent, and its reply is read in its place, so that
nobody is given the reply of somebody else.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import Final, TypeAlias

from redis.exceptions import InvalidResponse, RedisError

from idemproxy.store.redis_durability import Durability, Patience, is_among
from idemproxy.store.redis_endpoint import NO_REPLY, ServerConnection, drop
from idemproxy.store.redis_fault import LostReplyError, UnconfirmedError
from idemproxy.store.redis_script import packed

Reply: TypeAlias = "int | bytes | list[Reply] | None"

_Asked: TypeAlias = "tuple[asyncio.Future[Reply] | None, float, tuple[bytes, ...]]"
"""A command that has no reply yet: its future (None: the lane's own question whether writes count), its deadline, its writes."""

_PING: Final = packed(b"PING")
_SECOND_LOOK: Final = 0.02
"""Seconds."""


class Lane(asyncio.Protocol):
    """A connected redis-py connection, shared. Errors of the server come out of the futures as redis-py's exceptions."""

    def __init__(self, connection: ServerConnection, address: str, durability: Durability) -> None:
        self.open = True
        self.stuck = False
        """Whether it ended because the server did not reply in time."""
        self._durability = durability
        self._confirms = durability.is_asked
        self._unconfirmed: list[tuple[asyncio.Future[Reply], Reply]] = []
        self._confirm_until = 0.0
        self._confirming_since: float | None = None
        self._patience = Patience(durability.timeout)
        self._connection = connection
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_Asked] = deque()
        self._outbox: list[bytes] = []
        self._will_send = False
        self._is_full = False
        self._fallen: asyncio.Future[None] = self._loop.create_future()
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = math.inf
        self._late = False
        self._transport, self._reader = connection.hand_over(self)
        self._life = self._loop.create_task(self._live())

    def submit(self, command: bytes, until: float, writes: tuple[bytes, ...] = ()) -> asyncio.Future[Reply]:
        """Send a packed command; its reply must come before the loop's time `until`. Fails with LostReplyError.

        `writes`: replies, or first words of replies, that tell of a write that must be confirmed; fails with UnconfirmedError.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        if not self.open:
            future.set_exception(LostReplyError(f"redis at {self._address}: the connection has just ended"))
            return future
        if writes and self._confirms:
            self._confirm_until = max(self._confirm_until, until)
        self._pending.append((future, until, writes))
        self._outbox.append(command)
        if not self._will_send:
            self._will_send = True
            self._loop.call_soon(self._send)
        if until < self._watch_at:
            self._watch_for(until)
        return future

    async def close(self, until: float) -> None:
        """Wait for the replies that are under way, until the loop's time `until`, then let the connection go."""
        if self.open:
            with suppress(LostReplyError, RedisError):
                await self.submit(_PING, until)  # replies keep their order: this one is the last
        self._fall("it was closed")
        await asyncio.wait((self._life,))  # which goes on to its end when whoever waits for it here is cancelled

    async def _live(self) -> None:
        """Own the connection until the lane falls."""
        try:
            await self._fallen
        finally:  # also at the end of the loop, which cancels all that runs
            await drop(self._connection)

    def _send(self) -> None:
        """Send whatever was submitted since the last write. While the server reads slowly, the next batch grows."""
        self._will_send = False
        if self._is_full or not self.open:
            return
        batch, self._outbox = self._outbox, []
        if self._confirm_until and self._confirming_since is None:
            batch.append(self._durability.command(self._patience.seconds(self._loop.time())))
            self._pending.append((None, self._confirm_until, ()))
            self._confirm_until, self._confirming_since = 0.0, self._loop.time()
        if batch:
            self._transport.write(b"".join(batch))

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        """Give each reply to the oldest command that has none."""
        gets, pending = self._reader.gets, self._pending
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NO_REPLY:
                if not pending:
                    self._fall("the server sent a reply that nobody had asked for")
                    return
                future, _, writes = pending.popleft()
                if future is None:
                    self._confirm(reply)
                elif isinstance(reply, RedisError):
                    _fail(future, reply)
                elif writes and self._confirms and is_among(reply, writes):
                    self._unconfirmed.append((future, reply))
                elif not future.done():
                    future.set_result(reply)
        except InvalidResponse as error:
            self._fall(str(error))

    def pause_writing(self) -> None:
        """More waits to be sent than the transport likes to hold."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Most of that has left."""
        self._is_full = False
        self._loop.call_soon(self._send)

    def eof_received(self) -> None:
        """The server says nothing more."""
        self._fall("the server closed it")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._fall("it ended" if exc is None else str(exc))

    def _confirm(self, reply: Reply | RedisError) -> None:
        """Give out the replies to the writes before, which count, or do not."""
        why = str(reply) if isinstance(reply, RedisError) else self._durability.lacks(reply)
        for future, written in self._unconfirmed:
            if why is not None:
                _fail(future, UnconfirmedError(f"redis at {self._address}: the write is not confirmed: {why}", written))
            elif not future.done():
                future.set_result(written)
        self._unconfirmed.clear()
        if why is None:
            self._patience.confirmed(self._loop.time() - (self._confirming_since or 0.0))
        else:
            self._patience.passed()
        self._confirming_since = None
        if self._confirm_until:
            self._loop.call_soon(self._send)

    def _watch_for(self, until: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = until
        self._watch = self._loop.call_at(until, self._look)

    def _look(self) -> None:
        """One timer for all: at the earliest deadline, see whether that command still waits, and set the next.

        When this process itself was stopped, the reply may lie in the socket, unread: so a late command is looked at twice.
        """
        self._watch, self._watch_at = None, math.inf
        earliest, now = min((until for _, until, _ in self._pending), default=math.inf), self._loop.time()
        if earliest <= now and self._late:
            self.stuck = self.open
            self._fall("no reply came within the deadline")
        elif earliest < math.inf:
            self._late = earliest <= now
            self._watch_for(now + _SECOND_LOOK if self._late else earliest)
        else:
            self._late = False

    def _fall(self, why: str) -> None:
        """End the lane, once: whoever waits is told that the reply is lost."""
        if not self.open:
            return
        self.open = False
        if self._watch is not None:
            self._watch.cancel()
        waiting = [future for future, _ in self._unconfirmed] + [future for future, _, _ in self._pending if future is not None]
        for future in waiting:
            _fail(future, LostReplyError(f"redis at {self._address}: the connection was lost before the reply: {why}"))
        self._unconfirmed.clear()
        self._pending.clear()
        self._outbox.clear()
        if not self._fallen.done():
            self._fallen.set_result(None)


def _fail(future: asyncio.Future[Reply], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
