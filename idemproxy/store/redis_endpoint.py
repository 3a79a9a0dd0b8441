"""How a connection to a Redis server comes to stand, within a deadline: directly, by a socket, over TLS, or where Sentinels say.

The connections are redis-py's, which speak TLS and authenticate; redis-py never re-sends on them, since it gets no retry policy.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from hiredis import Reader
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import InvalidResponse, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from idemproxy.store.redis_script import packed
from idemproxy.store.redis_url import Address, Place, Topology, shown

_THE_SENTINELS_SHARE: Final = 0.5
"""Of the deadline: how long the Sentinels may take, who are asked side by side; the rest is for the server that they name."""

_SOON: Final = 0.05
"""Seconds for the other Sentinels, once one has named a primary."""


class _Named(NamedTuple):
    """What a Sentinel says: the number of the failover that it knows of, and the primary since then."""

    epoch: int
    primary: Address


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


NO_REPLY: Final = object()
"""What the reader of a connection gives when no whole reply is left."""


class ServerConnection(AbstractConnection):
    """A connection of redis-py: it goes at once when it is not to be waited for, and its bytes may be read by another."""

    async def disconnect(self, nowait: bool = False, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001, FBT002
        """As redis-py wants it when a command is cancelled, or fails.

        redis-py closes it politely: then what was not sent yet, or the good-bye of TLS, keeps the socket open while the server
        hangs.
        """
        if nowait and self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(nowait, *args, **kwargs)

    def hand_over(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport, Reader]:
        """Let `protocol` have what comes from now on, and the end; what it writes with, and a reader for what it is given.

        The reader makes exceptions of redis-py of what the server refuses, and raises InvalidResponse for what is no reply.
        """
        reader, writer = cast("asyncio.StreamReader", self._reader), cast("asyncio.StreamWriter", self._writer)
        transport = cast("asyncio.Transport", writer.transport)
        transport.set_protocol(protocol)
        if reader.at_eof() or transport.is_closing():  # of which the protocol before was told
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)
        return transport, Reader(protocolError=InvalidResponse, replyError=self._parser.parse_error, notEnoughData=NO_REPLY)


class _Plain(ServerConnection, Connection):
    pass


class _Tls(ServerConnection, SSLConnection):
    pass


class _Unix(ServerConnection, UnixDomainSocketConnection):
    pass


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

    async def connect(self, commands: Sequence[bytes]) -> ServerConnection:
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

    def _connection(self, address: Address) -> ServerConnection:
        options: dict[str, Any] = {"db": self.place.database, **self._credentials(), **self._usual(self.deadline)}
        if self.place.topology is Topology.SOCKET:
            return _Unix(path=self.place.socket, **options)
        return self._to(address, options)

    def _to(self, address: Address, options: dict[str, Any]) -> ServerConnection:
        host, port = address
        if self.place.is_tls:
            return _Tls(host=host, port=port, **self._tls.options(), **options)
        return _Plain(host=host, port=port, **options)

    def _credentials(self) -> dict[str, str | None]:
        return {"username": self.place.username, "password": self.place.password}

    def _usual(self, seconds: float) -> dict[str, Any]:
        # RESP2 and no CLIENT SETINFO: nothing on connecting that Redis 6.2, or a narrow ACL user, would refuse.
        return {"socket_timeout": None, "socket_connect_timeout": seconds, "retry": None, "protocol": 2, "driver_info": None}

    async def _find(self) -> Address:
        """Where the server is now: as the Sentinel says that knows of the latest failover. Raises RedisError when none names one.

        The first that answers may have missed it: the others are heard, too, where they answer soon.
        """
        if self.place.topology is not Topology.SENTINEL:
            return self.place.addresses[0] if self.place.addresses else ("", 0)
        asking = [asyncio.create_task(self._told_by(sentinel)) for sentinel in self.place.addresses]
        try:
            for first in asyncio.as_completed(asking):
                if not isinstance(await first, str):
                    await asyncio.wait(asking, timeout=_SOON)
                    told = [task.result() for task in asking if task.done()]
                    return max(each for each in told if not isinstance(each, str)).primary
        finally:
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
        reasons = (f"{shown(address)}: {task.result()}" for address, task in zip(self.place.addresses, asking, strict=True))
        raise MasterNotFoundError(f"no Sentinel names a primary for {self.place.service!r}: {'; '.join(reasons)}")

    async def _told_by(self, sentinel: Address) -> _Named | str:
        """The primary that a Sentinel names, or why it names none."""
        seconds = self.deadline * _THE_SENTINELS_SHARE
        connection = self._to(sentinel, self._usual(seconds) | (self._credentials() if self.place.sentinel_auth else {}))
        try:
            async with asyncio.timeout(seconds):
                await connection.connect()  # type: ignore[no-untyped-call]  # as above
                await connection.send_packed_command(
                    packed(b"SENTINEL", b"MASTER", self.place.service.encode()), check_health=False
                )
                reply = cast("Sequence[bytes]", await connection.read_response())
        except (TimeoutError, RedisTimeoutError):
            return f"no answer within {seconds:g} s"
        except (RedisError, OSError) as error:
            return _plainly(error)
        finally:
            await drop(connection)
        told = dict(zip(reply[::2], reply[1::2], strict=False))
        primary = told[b"ip"].decode(), int(told[b"port"])
        is_down = not {b"s_down", b"o_down"}.isdisjoint(told[b"flags"].split(b","))
        return f"it takes the primary, {shown(primary)}, for down" if is_down else _Named(int(told[b"config-epoch"]), primary)


def _plainly(error: RedisError | OSError) -> str:
    """What a Sentinel, or the network, said."""
    code, cause = getattr(error, "status_code", None), error.__cause__ or error.__context__
    if code == "NOAUTH":
        return "it asks for a password: add ?sentinel_auth=yes to store.url, where that is the server's"
    if code == "ERR" and "unknown command" in str(error):
        return "it is no Sentinel"
    if isinstance(cause, OSError) and cause.strerror:  # redis-py wraps it in an address and a number
        return os.strerror(cause.errno or 0) if cause.strerror.startswith("Connect call failed") else cause.strerror  # asyncio's
    return f"{code} {error}" if code and code != "ERR" else str(error)


async def drop(connection: AbstractConnection) -> None:
    """Let a connection go at once: TLS would wait half a minute for the good-bye of a server that does not answer."""
    await connection.disconnect(nowait=True)
