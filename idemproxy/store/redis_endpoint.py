"""How a connection to a Redis server comes to stand, within a deadline: directly, by a socket, over TLS, or where Sentinels say.

The connections are redis-py's, which speak TLS and authenticate; redis-py never re-sends on them, since it gets no retry policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import RedisError

from idemproxy.store.redis_url import Address, Place, Topology

_A_SENTINELS_SHARE: Final = 0.25
"""Of the deadline: how long one Sentinel may take before the next is asked."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files for rediss://: authorities in the place of the system's, and our own certificate with its key."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def options(self) -> dict[str, Any]:
        """As redis-py takes them; the server's certificate and name are always checked."""
        return {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.certificate_file, "ssl_keyfile": self.key_file}


USUAL_TLS: Final = TlsFiles()


class Endpoint:
    """A server that takes writes. `deadline` in seconds bounds connecting, the finding included."""

    def __init__(self, place: Place, deadline: float, tls: TlsFiles = USUAL_TLS) -> None:
        self.place = place
        self.address = place.shown
        self.deadline = deadline
        self._tls = tls

    @property
    def hint(self) -> str:
        """What to do when the server ends a new connection without a word, as it does where TLS is not what it expects."""
        if self.place.is_tls:
            return "where it asks for a certificate, name ours in store.tls.certificate_file"
        return "where it speaks TLS, begin store.url with rediss://"

    async def connect(self, commands: Sequence[bytes]) -> AbstractConnection:
        """A new connection on which the server has confirmed each of `commands`, within the deadline.

        Raises RedisError or OSError, the connection closed.
        """
        async with asyncio.timeout(self.deadline):
            connection = self._connection(await self._find())
            try:
                await connection.connect()  # type: ignore[no-untyped-call]  # redis-py leaves it bare
                await connection.send_packed_command(commands, check_health=False)
                for _ in commands:
                    await connection.read_response()
            except BaseException:
                await drop(connection)
                raise
        return connection

    async def moved_from(self, connection: AbstractConnection) -> bool:
        """Whether Sentinels name another server than this one by now. Raises RedisError when none of them knows a primary."""
        if self.place.topology is not Topology.SENTINEL:
            return False
        async with asyncio.timeout(self.deadline):
            found = await self._find()
        reached = cast("Connection", connection)
        return found != (reached.host, reached.port)

    def at(self, address: Address, share: float = 1.0) -> Endpoint:
        """Another server, reached in the same way, within a share of the deadline."""
        return Endpoint(self.place.at(address), self.deadline * share, self._tls)

    def _connection(self, address: Address) -> AbstractConnection:
        # RESP2 and no CLIENT SETINFO: nothing on connecting that Redis 6.2, or a narrow ACL user, would refuse.
        options: dict[str, Any] = {"db": self.place.database, **self._credentials(), **self._times(self.deadline)}
        options |= {"protocol": 2, "driver_info": None}
        if self.place.topology is Topology.SOCKET:
            return UnixDomainSocketConnection(path=self.place.socket, **options)
        host, port = address
        if self.place.is_tls:
            return SSLConnection(host=host, port=port, **self._tls.options(), **options)
        return Connection(host=host, port=port, **options)

    def _credentials(self) -> dict[str, str | None]:
        return {"username": self.place.username, "password": self.place.password}

    def _times(self, seconds: float) -> dict[str, Any]:
        return {"socket_timeout": None, "socket_connect_timeout": seconds, "retry": None}

    async def _find(self) -> Address:
        """Where the server is now. Raises RedisError when no Sentinel knows a primary."""
        if self.place.topology is not Topology.SENTINEL:
            return self.place.addresses[0] if self.place.addresses else ("", 0)
        share = self.deadline * _A_SENTINELS_SHARE
        options = {**self._times(share), "socket_timeout": share, "protocol": 2, "driver_info": None}
        if self.place.sentinel_auth:
            options |= self._credentials()
        if self.place.is_tls:
            options |= {"ssl": True, **self._tls.options()}
        sentinels = Sentinel(self.place.addresses, sentinel_kwargs=options)  # type: ignore[no-untyped-call]  # as above
        try:
            return cast("Address", await sentinels.discover_master(self.place.service))
        finally:
            for sentinel in sentinels.sentinels:
                with suppress(RedisError, OSError):
                    await sentinel.aclose()


async def drop(connection: AbstractConnection) -> None:
    """Let a connection go at once: TLS would wait half a minute for the good-bye of a server that does not answer."""
    writer = connection._writer  # noqa: SLF001 -- redis-py closes it politely, or not at all
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)
