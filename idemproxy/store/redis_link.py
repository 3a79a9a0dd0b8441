"""The link to one Redis server: a lane made on demand, and the rule by which a command is asked again.

A command goes out once, and once more only if the caller's deadline allows, and the connection ended before the reply came, or
the server has become a replica and so did not carry it out: then a new connection may lead to the primary.
That is no blind repetition: a claim carries its owner's nonce and every later write its hold, so that the second copy is
answered as the first was (core.transition); at worst a release that was carried out reads as stale when the key was taken
again in between. A person's act is sent once only, since a second copy would be refused for what the first did.

The circuit. It is closed while the last command, or the last attempt to connect, was heard. When no reply came in time, or no
connection, it is open: the next caller begins an attempt to connect, unless there is one or a pause after one, and nobody waits
for that for longer than a moment. So a server that takes connections and answers nothing costs a caller `_MOMENT` instead of the
whole deadline. The attempt goes on by itself: when it succeeds, with the scripts loaded, the circuit is closed.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, cast

from redis.exceptions import NoScriptError, RedisError

from idemproxy.store.base import StoreUnavailableError
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_endpoint import Endpoint, ServerConnection
from idemproxy.store.redis_fault import LostReplyError, RefusedError, UnconfirmedError, is_replica, unavailable
from idemproxy.store.redis_lane import Lane, Reply
from idemproxy.store.redis_script import ALL, Part, Script, packed

# Between attempts to connect, in seconds: doubled from the first to the last, each shortened by up to half at random, so that
# the proxies of a server that comes back do not all knock at once.
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 0.5

_MOMENT: Final = 0.1
"""Seconds that a caller waits for a connection to a server that did not answer the last time."""

_DOUBT: Final = 1.0
"""Seconds between looks for another primary, while replicas do not confirm what is written to this one."""

_ASKING: Final = packed(b"ASKING")


class Link:
    """The lane to an endpoint. One attempt to connect at a time, joined by all; none during the pause after a failed one."""

    def __init__(self, endpoint: Endpoint, durability: Durability) -> None:
        self.address: Final = endpoint.address
        """For messages."""
        self.deadline: Final = endpoint.deadline
        """Of an operation, in seconds."""
        self._endpoint = endpoint
        self._durability = durability
        self._lane: Lane | None = None
        self._opening: asyncio.Task[Lane | None] | None = None
        self._connection: ServerConnection | None = None
        self._doubting: asyncio.Task[None] | None = None
        self._doubted_at = -math.inf
        self._closed = False
        self._failures = 0
        self._failing_since = 0.0
        self._not_before = 0.0
        self._why = f"redis at {endpoint.address}: not connected yet"

    @property
    def is_out(self) -> bool:
        """Whether the last attempt to reach the server failed."""
        return self._failures > 0

    @property
    def is_given_up(self) -> bool:
        """Whether the server has been out of reach for longer than a caller waits."""
        return self.is_out and asyncio.get_running_loop().time() - self._failing_since > self.deadline

    async def reach(self, until: float) -> Lane:
        """An open lane, by the loop's time `until`. Raises StoreUnavailableError, at once during a pause."""
        if self._lane is not None and self._lane.open:
            return self._lane
        loop = asyncio.get_running_loop()
        if self._opening is None:
            if self._closed or loop.time() < self._not_before:
                raise StoreUnavailableError(self._why)
            if self._lane is not None and self._lane.stuck and not self._failures:
                self._failed(f"redis at {self.address}: it did not reply within the deadline; see why it hangs")
            self._opening = loop.create_task(self._open())
        opening = self._opening
        patience = until - loop.time()
        await asyncio.wait((opening,), timeout=min(patience, _MOMENT) if self._failures else patience)
        if not opening.done():
            late = f"redis at {self.address}: no connection within the deadline"
            raise StoreUnavailableError(self._why if self._failures else late)
        lane = None if opening.cancelled() else opening.result()
        if lane is None:
            raise StoreUnavailableError(self._why)
        return lane

    def run(self, script: Script, *parts: Part) -> Coroutine[Any, Any, Reply]:
        """Run a script with its keys and arguments. Raises StoreUnavailableError."""
        return self.told(script.call(*parts), asyncio.get_running_loop().time() + self.deadline, script)

    def ask(self, command: bytes, _key: bytes) -> Coroutine[Any, Any, Reply]:
        """The reply to a packed command, which must be idempotent: see above. Raises StoreUnavailableError."""
        return self.told(command, asyncio.get_running_loop().time() + self.deadline)

    async def told(self, command: bytes, until: float, script: Script | None = None, *, asking: bool = False) -> Reply:
        """The reply, by the loop's time `until`. Raises StoreUnavailableError, of it RefusedError for what the server refuses.

        `asking`: the cluster sent us here for this command alone.
        """
        again, lost = False, None
        while True:
            failure: StoreUnavailableError
            lane = self._lane
            try:
                if lane is None or not lane.open:
                    lane = await self.reach(until)
                if asking:
                    lane.submit(_ASKING, until).add_done_callback(_heard)
                return await lane.submit(command, until, () if script is None else script.writes)
            except LostReplyError as error:
                failure = lost = error
                once = script is not None and not script.repeatable
                is_done = once or asyncio.get_running_loop().time() >= until
            except StoreUnavailableError as error:
                failure, is_done = error, True
                if isinstance(error, UnconfirmedError):
                    self._doubt()
            except RedisError as error:
                left = error if lane is None else await _left(lane, error, until, script)
                failure, is_done = RefusedError(self.address, left or error), left is not None
            if is_done or again:
                if lost is None or lost is failure:
                    raise failure
                # The first copy may have been carried out, whatever became of the second.
                raise LostReplyError(f"{lost}; then {failure}") from failure
            again = True

    async def spread(self, _keys: Sequence[bytes]) -> Sequence[int]:
        """The places, in `keys`, of one key for each server that takes writes: this one has them all."""
        return (0,)

    async def servers(self) -> Sequence[Link]:
        """The links to all servers that take writes: this one."""
        return (self,)

    async def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, Sequence[bytes]]:
        """Some keys that fit, and where to go on, 0 at the end. Raises StoreUnavailableError."""
        command = packed(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", count)
        following, keys = cast("tuple[bytes, Sequence[bytes]]", await self.ask(command, b""))
        return int(following), keys

    async def close(self) -> None:
        """Wait for the replies under way, then let go of the connection. Later commands are refused."""
        self._closed = True
        self._why = f"redis at {self.address}: the store is closed"
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._doubting is not None:
            self._doubting.cancel()
            await asyncio.wait((self._doubting,))
        if self._lane is not None:
            await self._lane.close(asyncio.get_running_loop().time() + self.deadline)

    async def _open(self) -> Lane | None:
        """Connect and load the scripts, which also proves that the server answers. None on failure, with the reason in `_why`."""
        loop = asyncio.get_running_loop()
        if self._lane is not None:
            await self._lane.close(loop.time())  # it has fallen: see its connection gone
        try:
            connection = await self._endpoint.connect([script.load for script in ALL])
        except (RedisError, OSError) as error:
            pause = min(_LAST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
            self._failed(str(unavailable(self.address, error, self._endpoint.hint)))
            self._not_before = loop.time() + pause * random.uniform(0.5, 1)  # noqa: S311 -- spreads the knocks, guards nothing
            return None
        else:
            self._failures = 0
            self._connection = connection
            self._lane = Lane(connection, self.address, self._durability)
            return self._lane
        finally:
            self._opening = None

    def _doubt(self) -> None:
        """Replicas did not confirm a write: see whether they follow another by now.

        A primary that slept through a failover takes itself for one for some ten seconds, until a Sentinel tells it otherwise.
        """
        loop = asyncio.get_running_loop()
        if self._doubting is None and loop.time() >= self._doubted_at + _DOUBT and not self._closed:
            self._doubted_at = loop.time()
            self._doubting = loop.create_task(self._look_elsewhere())

    async def _look_elsewhere(self) -> None:
        """Leave a server in whose place Sentinels name another."""
        lane, connection = self._lane, self._connection
        try:
            if lane is not None and connection is not None and await self._endpoint.moved_from(connection):
                await lane.close(asyncio.get_running_loop().time())
        except (RedisError, OSError):
            pass  # no Sentinel knows better
        finally:
            self._doubting = None

    def _failed(self, why: str) -> None:
        """Open the circuit, or keep it open."""
        if not self._failures:
            self._failing_since = asyncio.get_running_loop().time()
        self._failures += 1
        self._why = why


async def together(calls: Iterable[Coroutine[Any, Any, Reply]]) -> Sequence[Reply]:
    """The replies of all calls, which leave in one write. Raises the error of the first that failed, after all have ended."""
    replies = await asyncio.gather(*calls, return_exceptions=True)  # so that none is left unheard when one fails
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply
    return cast("Sequence[Reply]", replies)


async def _left(lane: Lane, error: RedisError, until: float, script: Script | None) -> RedisError | None:
    """What still keeps a command from being carried out; None where the reason was removed."""
    if isinstance(error, NoScriptError) and script is not None:
        try:
            await lane.submit(script.load, until)
        except RedisError as worse:
            return worse
        return None
    if is_replica(error):
        await lane.close(asyncio.get_running_loop().time())  # whoever connects anew may find the primary
        return None
    return error


def _heard(reply: asyncio.Future[Reply]) -> None:
    """Nobody waits for this one: what went wrong is told by the command behind it."""
    if not reply.cancelled():
        reply.exception()
