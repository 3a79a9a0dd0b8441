"""The link to one Redis server: a lane made on demand, and the rule by which a command is asked again.

A command goes out once, and once more only if the caller's deadline allows, and the connection ended before the reply came, or
the server has become a replica and so did not carry it out: then a new connection may lead to the primary.
That is no blind repetition: a claim carries its owner's nonce and every later write its hold, so that the second copy is
answered as the first was (core.transition); at worst a release that was carried out reads as stale when the key was taken
again in between. A person's act is sent once only, since a second copy would be refused for what the first did.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final, cast

from redis.exceptions import NoScriptError, RedisError

from idemproxy.store.base import StoreUnavailableError
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_endpoint import Endpoint
from idemproxy.store.redis_fault import LostReplyError, is_replica, unavailable
from idemproxy.store.redis_lane import Lane, Reply
from idemproxy.store.redis_script import ALL, Script, packed

# Between attempts to connect, in seconds: doubled from the first to the last, each shortened by up to half at random, so that
# the proxies of a server that comes back do not all knock at once.
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 0.5

_ASKING: Final = packed(b"ASKING")


class Link:
    """The lane to an endpoint. One attempt to connect at a time, joined by all; none during the pause after a failed one."""

    def __init__(self, endpoint: Endpoint, durability: Durability) -> None:
        self._endpoint = endpoint
        self._durability = durability
        self._lane: Lane | None = None
        self._opening: asyncio.Task[Lane | None] | None = None
        self._closed = False
        self._failures = 0
        self._not_before = 0.0
        self._why = f"redis at {endpoint.address}: not connected yet"

    async def reach(self, until: float) -> Lane:
        """An open lane, by the loop's time `until`. Raises StoreUnavailableError, at once during a pause."""
        if self._lane is not None and self._lane.open:
            return self._lane
        loop = asyncio.get_running_loop()
        if self._opening is None:
            if self._closed or loop.time() < self._not_before:
                raise StoreUnavailableError(self._why)
            self._opening = loop.create_task(self._open())
        opening = self._opening
        await asyncio.wait((opening,), timeout=until - loop.time())
        if not opening.done():
            raise StoreUnavailableError(f"redis at {self._endpoint.address}: no connection within the deadline")
        lane = None if opening.cancelled() else opening.result()
        if lane is None:
            raise StoreUnavailableError(self._why)
        return lane

    async def run(self, script: Script, *parts: bytes) -> Reply:
        """Run a script with its keys and arguments. Raises StoreUnavailableError."""
        return await self.ask(script.call(*parts), parts[0], script)

    async def ask(self, command: bytes, _key: bytes, script: Script | None = None) -> Reply:
        """The reply to a packed command, which must be idempotent unless its script says so: see above.

        Raises StoreUnavailableError.
        """
        try:
            until = asyncio.get_running_loop().time() + self._endpoint.deadline
            return await self.told(command, until, script)
        except RedisError as error:
            raise unavailable(self._endpoint.address, error) from error

    async def told(self, command: bytes, until: float, script: Script | None = None, *, asking: bool = False) -> Reply:
        """As `ask`, by the loop's time `until`, and what the server refuses comes as its error.

        `asking`: the cluster sent us here for this command alone.
        """
        loop = asyncio.get_running_loop()
        once = script is not None and not script.repeatable
        again = False
        while True:
            lane = self._lane if self._lane is not None and self._lane.open else await self.reach(until)
            try:
                if asking:
                    lane.submit(_ASKING, until).add_done_callback(_heard)
                return await lane.submit(command, until, () if script is None else script.writes)
            except LostReplyError:
                if again or once or loop.time() >= until:
                    raise
            except NoScriptError:  # it was not carried out
                if again or script is None:
                    raise
                await lane.submit(script.load, until)
            except RedisError as error:
                if not is_replica(error):
                    raise
                await lane.close(loop.time())  # it was not carried out; whoever connects anew may find the primary
                if again:
                    raise
            again = True

    async def spread(self, name: str) -> Sequence[bytes]:
        """Keys that begin with `name`, one for each server."""
        return (name.encode(),)

    async def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, Sequence[bytes]]:
        """Some keys that fit, and where to go on, 0 at the end. Raises StoreUnavailableError."""
        command = packed(b"SCAN", b"%d" % cursor, b"MATCH", pattern, b"COUNT", b"%d" % count)
        following, keys = cast("tuple[bytes, Sequence[bytes]]", await self.ask(command, b""))
        return int(following), keys

    async def close(self) -> None:
        """Wait for the replies under way, then let go of the connection. Later commands are refused."""
        self._closed = True
        self._why = f"redis at {self._endpoint.address}: the store is closed"
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._lane is not None:
            await self._lane.close(asyncio.get_running_loop().time() + self._endpoint.deadline)

    async def _open(self) -> Lane | None:
        """Connect and load the scripts, which also proves that the server answers. None on failure, with the reason in `_why`."""
        loop = asyncio.get_running_loop()
        if self._lane is not None:
            await self._lane.close(loop.time())  # it has fallen: see its connection gone
        try:
            connection = await self._endpoint.connect([script.load for script in ALL])
        except (RedisError, OSError) as error:
            self._why = str(unavailable(self._endpoint.address, error))
            pause = min(_LAST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
            self._failures += 1
            self._not_before = loop.time() + pause * random.uniform(0.5, 1)  # noqa: S311 -- spreads the knocks, guards nothing
            return None
        else:
            self._failures = 0
            self._lane = Lane(connection, self._endpoint.address, self._durability)
            return self._lane
        finally:
            self._opening = None


def _heard(reply: asyncio.Future[Reply]) -> None:
    """Nobody waits for this one: what went wrong is told by the command behind it."""
    if not reply.cancelled():
        reply.exception()
