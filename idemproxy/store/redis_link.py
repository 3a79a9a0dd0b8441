"""The link to one Redis server: where it is, a lane made on demand, and the rule by which a command is asked again.

A command goes out once, and once more only if the connection ended before the reply came and the caller's deadline allows.
That is no blind repetition: a claim carries its owner's nonce and every later write its hold, so that the second copy is
answered as the first was (core.transition); at worst a release that was carried out reads as stale when the key was taken
again in between. A person's act is sent once only, since a second copy would be refused for what the first did. redis-py
itself never re-sends: it gets no retry policy, and no connection of its own making.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import NoScriptError, RedisError

from idemproxy.store.base import StoreError, StoreUnavailableError
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_fault import LostReplyError, unavailable
from idemproxy.store.redis_lane import Lane, Reply
from idemproxy.store.redis_script import ALL, Script

# Between attempts to connect, in seconds: doubled from the first to the last, each shortened by up to half at random, so that
# the proxies of a server that comes back do not all knock at once.
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 0.5

_SCHEMES: Final = {"redis": {"db"}, "rediss": {"db"}, "unix": {"db", "username", "password"}}


class Endpoint:
    """A server as `store.url` names it. `deadline` in seconds also bounds connecting. Raises StoreError."""

    def __init__(self, url: str, deadline: float) -> None:
        self.address = _checked(url)
        self.deadline = deadline
        # RESP2 and no CLIENT SETINFO: nothing on connecting that Redis 6.2, or a narrow ACL user, would refuse.
        self._pool = ConnectionPool.from_url(
            url, protocol=2, driver_info=None, retry=None, socket_timeout=None, socket_connect_timeout=deadline
        )

    async def connect(self, commands: Sequence[bytes]) -> AbstractConnection:
        """A new connection on which the server has confirmed each of `commands`, within the deadline.

        Raises RedisError or OSError, the connection closed.
        """
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis-py leaves it bare
        try:
            async with asyncio.timeout(self.deadline):
                await connection.connect()  # type: ignore[no-untyped-call]  # as above
                await connection.send_packed_command(commands, check_health=False)
                for _ in commands:
                    await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection


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
        return await self.ask(script.call(*parts), script)

    async def ask(self, command: bytes, script: Script | None = None) -> Reply:
        """The reply to a packed command, which must be idempotent unless its script says so: see above.

        Raises StoreUnavailableError.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._endpoint.deadline
        once = script is not None and not script.repeatable
        again = False
        while True:
            lane = self._lane
            try:
                if lane is None or not lane.open:
                    lane = await self.reach(until)
                return await lane.submit(command, until, () if script is None else script.writes)
            except LostReplyError:
                if again or once or loop.time() >= until:
                    raise
            except NoScriptError as error:  # it was not carried out
                if again or script is None or lane is None:
                    raise unavailable(self._endpoint.address, error) from error
                await self._load(lane, script, until)
            except RedisError as error:
                raise unavailable(self._endpoint.address, error) from error
            again = True

    async def close(self) -> None:
        """Wait for the replies under way, then let go of the connection. Later commands are refused."""
        self._closed = True
        self._why = f"redis at {self._endpoint.address}: the store is closed"
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._lane is not None:
            await self._lane.close(asyncio.get_running_loop().time() + self._endpoint.deadline)

    async def _load(self, lane: Lane, script: Script, until: float) -> None:
        try:
            await lane.submit(script.load, until)
        except RedisError as error:
            raise unavailable(self._endpoint.address, error) from error

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


def _checked(url: str) -> str:
    """Where a URL leads, for messages: without its password. Raises StoreError for what redis-py would let pass or misread."""
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise StoreError(f"store.url is not a URL: {error}") from error
    allowed = _SCHEMES.get(parts.scheme)
    database = options.get("db", [""])[0] or ("" if parts.scheme == "unix" else parts.path.removeprefix("/"))
    # redis-py has many options more; some of them, such as retry_on_timeout, would make it send commands twice.
    problem = (
        f"begins with {parts.scheme or 'nothing'}://; it must begin with redis://, rediss:// or unix://"
        if allowed is None
        else f"has options that are not known: {', '.join(sorted(unknown))}"
        if (unknown := options.keys() - allowed)
        else f"names the database {database!r}; it must be a whole number, as in redis://host:6379/0"
        if database and not (database.isascii() and database.isdigit())
        else "names no host"
        if parts.scheme != "unix" and not parts.hostname
        else "names no socket; it must read unix:///path/to/redis.sock"
        if parts.scheme == "unix" and (parts.hostname or not parts.path)
        else None
    )
    if problem:
        raise StoreError(f"store.url {problem}")
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{port or 6379}"
