"""A lane: one connection that many callers share, and that lives once.

Commands that are submitted in one turn of the event loop leave in one write, and replies are handed out in the order of
the commands: that is what makes a command cost microseconds (a pooled connection per command costs some hundred and fifty).
The price is that one stuck command blocks all behind it, so every command has a deadline, and the first one that passes
ends the lane: all who wait are told that their reply is lost, and the connection is dropped.

A caller that is cancelled abandons its future only. Its command is sent, and its reply is read in its place, so that
nobody is given the reply of somebody else.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import Final, TypeAlias

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import InvalidResponse, RedisError

from idemproxy.store.redis_fault import LostReplyError, is_reply
from idemproxy.store.redis_script import packed

Reply: TypeAlias = "int | bytes | list[Reply] | None"

_PING: Final = packed(b"PING")
_SECOND_LOOK: Final = 0.02
"""Seconds."""


class Lane:
    """A connected redis-py connection, shared. Errors of the server come out of the futures as redis-py's exceptions."""

    def __init__(self, connection: AbstractConnection, address: str) -> None:
        self.open = True
        self._connection = connection
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._pending: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._outbox: list[bytes] = []
        self._wanted = asyncio.Event()
        self._fallen: asyncio.Future[None] = self._loop.create_future()
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = math.inf
        self._late = False
        self._life = self._loop.create_task(self._live())

    def submit(self, command: bytes, until: float) -> asyncio.Future[Reply]:
        """Send a packed command; its reply must come before the loop's time `until`. Fails with LostReplyError."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if not self.open:
            future.set_exception(LostReplyError(f"redis at {self._address}: the connection has just ended"))
            return future
        self._pending.append((future, until))
        self._outbox.append(command)
        self._wanted.set()
        if until < self._watch_at:
            self._watch_for(until)
        return future

    async def close(self, until: float) -> None:
        """Wait for the replies that are under way, until the loop's time `until`, then let the connection go."""
        if self.open:
            with suppress(LostReplyError, RedisError):
                await self.submit(_PING, until)  # replies keep their order: this one is the last
        self._fall("it was closed")
        await self._life

    async def _live(self) -> None:
        """Own the connection, the reader and the writer until one of them ends."""
        reading = self._loop.create_task(self._read())
        writing = self._loop.create_task(self._write())
        await asyncio.wait((reading, writing, self._fallen), return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        writing.cancel()
        ends = await asyncio.gather(reading, writing, return_exceptions=True)
        self._fall(next((str(end) for end in ends if isinstance(end, Exception)), "it ended"))
        await self._connection.disconnect(nowait=True)

    async def _write(self) -> None:
        """Send whatever was submitted since the last write. While the server reads slowly, the next batch grows."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            batch, self._outbox = self._outbox, []
            # After a failure redis-py would connect anew by itself at the next send; there is none, since this task has ended.
            await self._connection.send_packed_command(batch, check_health=False)

    async def _read(self) -> None:
        """Give each reply to the oldest command that has none."""
        read = self._connection.read_response
        while True:
            try:
                reply = await read(timeout=math.inf, disconnect_on_error=False)
            except RedisError as error:
                if not is_reply(error):
                    raise
                future = self._next()
                if not future.done():
                    future.set_exception(error)
            else:
                future = self._next()
                if not future.done():
                    future.set_result(reply)

    def _next(self) -> asyncio.Future[Reply]:
        if not self._pending:
            raise InvalidResponse("the server sent a reply that nobody had asked for")
        return self._pending.popleft()[0]

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
        earliest, now = min((until for _, until in self._pending), default=math.inf), self._loop.time()
        if earliest <= now and self._late:
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
        for future, _ in self._pending:
            if not future.done():
                future.set_exception(LostReplyError(f"redis at {self._address}: the connection was lost before the reply: {why}"))
        self._pending.clear()
        if not self._fallen.done():
            self._fallen.set_result(None)
