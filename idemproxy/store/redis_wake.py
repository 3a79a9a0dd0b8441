"""Waking across processes: a subscription to the channel on which the settling scripts name the record that was settled.

It has a connection of its own, made when someone first waits. Pub/sub promises nothing: a message that is sent while the
connection is down is lost. So every new subscription lets all who wait look again, and every wait has an end of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from idemproxy.core.record import Identity
from idemproxy.store.base import Wake
from idemproxy.store.base_wake import LocalWakes
from idemproxy.store.redis_endpoint import drop
from idemproxy.store.redis_form import Keys
from idemproxy.store.redis_script import packed

# Seconds of silence after which the subscription is tried by a PING, and, at most, between attempts to subscribe.
_SILENCE: Final = 5.0
_PAUSE: Final = 0.5

_PING: Final = packed(b"PING")


class Connects(Protocol):
    """Whoever makes connections that carry messages, within a deadline in seconds."""

    @property
    def deadline(self) -> float:
        """Of connecting."""

    async def connect(self, commands: Sequence[bytes]) -> AbstractConnection:
        """A connection on which each of `commands` was confirmed. Raises RedisError or OSError."""


class RedisWakes(LocalWakes):
    """Who waits in this process, woken from here and, once someone waits, from everywhere."""

    def __init__(self, endpoint: Connects, channel: bytes, keys: Keys) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._channel = channel
        self._keys = keys
        self._watched: Counter[Identity] = Counter()
        self._tried = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self, identity: Identity) -> Iterator[Wake]:
        """As base.Store.watch; the first one subscribes."""
        if self._listening is None or self._listening.done():
            self._tried.clear()
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        self._watched[identity] += 1
        try:
            with super().watch(identity) as wake:
                yield wake
        finally:
            self._watched[identity] -= 1
            if not self._watched[identity]:
                del self._watched[identity]

    async def ready(self) -> None:
        """Return when the subscription stands, or is late: a claim that is watched before may miss its message."""
        if self._listening is not None and not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._endpoint.deadline / 4):  # what is missed only delays: leave time for the claim
                    await self._tried.wait()
            self._tried.set()

    async def close(self) -> None:
        """Unsubscribe by letting the connection go."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening,))

    async def _listen(self) -> None:
        """Subscribe, again after each loss, for as long as anyone waits; a loss while nobody does ends it."""
        while True:
            try:
                connection = await self._endpoint.connect([packed(b"SUBSCRIBE", self._channel)])
            except (RedisError, OSError):
                self._tried.set()  # the commands of the link meet the same outage, and report it
            else:
                if self._tried.is_set():  # not the first attempt: what was sent before this one is lost
                    for identity in tuple(self._watched):
                        self.wake(identity)
                self._tried.set()
                await self._hear(connection)
            if not self._watched:
                return
            await asyncio.sleep(_PAUSE * random.uniform(0.5, 1))  # noqa: S311 -- spreads the proxies of a server, guards nothing

    async def _hear(self, connection: AbstractConnection) -> None:
        """Pass messages on until the connection is lost, or is silent after a PING too."""
        asked = False
        try:
            while True:
                message = await connection.read_response(timeout=_SILENCE, disconnect_on_error=False)
                if message is None and asked:
                    return
                asked = message is None
                if asked:
                    await connection.send_packed_command(_PING, check_health=False)
                elif message[0] == b"message" and (identity := self._keys.identity(message[2])) is not None:
                    self.wake(identity)
        except (RedisError, OSError):
            return
        finally:
            await drop(connection)
