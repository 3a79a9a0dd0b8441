"""The link to a Redis Cluster: which node has which slot, a link for each node, and what a redirection means.

A record, its answer and its audit trail have one slot by their hash tag, so each script meets one node. A redirection says that
the command was not carried out. A lost reply says nothing; then the command is asked again where its slot has gone, by the same
rule as on one server (redis_link), until the caller's deadline; but where a node has been out of reach for longer than that, and
nobody has taken over its slots, the caller is told so after one look at the map.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeAlias, cast

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MasterDownError, MovedError, RedisError, TryAgainError

from idemproxy.store.base import StoreUnavailableError, StoreUncertainError
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_endpoint import Endpoint, drop
from idemproxy.store.redis_fault import RefusedError, UnconfirmedError, unavailable
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_link import Link
from idemproxy.store.redis_script import Part, Script, packed
from idemproxy.store.redis_url import Address

_SLOTS: Final = packed(b"CLUSTER", b"SLOTS")
_PAUSE: Final = 0.05
"""Seconds before a command is tried again while the cluster finds a new primary, and between looks at its map."""

_A_NODES_SHARE: Final = 0.4
"""Of the deadline: how long one node may take to tell the map before the next is asked."""

_CURSORS: Final = 2**64
"""A node's own cursors are below this."""

Node: TypeAlias = "tuple[bytes | None, int, bytes, Sequence[bytes]]"
"""As CLUSTER SLOTS tells it: host, port, id, and what else is known of it as names and values."""

Range: TypeAlias = tuple[int, int, Address]
"""First and last slot, and the node that takes writes for them."""


class _AgainError(Exception):
    """A command was not carried out, or may be asked again: `failure` is what to say when there is no time left for that."""

    def __init__(self, failure: StoreUnavailableError, address: Address | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.address = address


class ClusterLink:
    """The links to a cluster's primaries. As `Link`, each command going to the node that has its key."""

    def __init__(self, endpoint: Endpoint, durability: Durability) -> None:
        self.deadline = endpoint.deadline
        self._endpoint = endpoint
        self._durability = durability
        self._ranges: list[Range] = []
        self._links: dict[Address, Link] = {}
        self._leaving: list[Link] = []
        self._looking: asyncio.Task[str | None] | None = None
        self._looked_at = -1.0

    async def reach(self, until: float) -> None:
        """Know the cluster's map, by the loop's time `until`. Raises StoreUnavailableError."""
        await self._look(until)

    def run(self, script: Script, key: bytes, *parts: Part) -> Coroutine[Any, Any, Reply]:
        """Run a script with its keys and arguments. Raises StoreUnavailableError."""
        return self.ask(script.call(key, *parts), key, script)

    async def ask(self, command: bytes, key: bytes, script: Script | None = None) -> Reply:
        """The reply to a packed command about a key. Raises StoreUnavailableError."""
        loop = asyncio.get_running_loop()
        until, slot = loop.time() + self.deadline, key_slot(key)
        address: Address = ("", 0)
        redirected: Address | None = None
        lost: StoreUncertainError | None = None
        while True:
            try:
                address = redirected or await self._of(slot, until)
                return await self._attempt(command, address, until, script, redirected is not None)
            except _AgainError as again:
                lost = again.failure if isinstance(again.failure, StoreUncertainError) else lost
                redirected = again.address
                looking = None if redirected else self._refresh()
                if loop.time() + _PAUSE < until and looking is not None:
                    await asyncio.wait((looking,), timeout=until - loop.time())
                if loop.time() + _PAUSE >= until or (self._owner(slot) == address and self._link(address).is_given_up):
                    raise (lost or again.failure) from again
            except StoreUnavailableError as error:
                if lost is None:
                    raise
                raise lost from error  # what was sent before may have been carried out

    async def _attempt(self, command: bytes, address: Address, until: float, script: Script | None, asking: bool) -> Reply:  # noqa: FBT001
        """One node's reply. Raises StoreUnavailableError, or _AgainError when the command may be asked again, or elsewhere."""
        try:
            return await self._link(address).told(command, until, script, asking=asking)
        except UnconfirmedError:
            raise
        except RefusedError as refused:
            error = refused.error
            failure = unavailable(self._endpoint.address, error)
            match error:
                case MovedError() | ClusterDownError() | MasterDownError() | TryAgainError():
                    raise _AgainError(failure) from error
                case AskError():  # a MovedError is one, too, to redis-py
                    raise _AgainError(failure, self._sent_to(error, address)) from error
                case _:
                    raise failure from error
        except StoreUnavailableError as error:
            if isinstance(error, StoreUncertainError) and script is not None and not script.repeatable:
                raise
            raise _AgainError(error) from error

    async def spread(self, keys: Sequence[bytes]) -> Sequence[int]:
        """The places, in `keys`, of one key for each node that takes writes; a node that has none of them is left out.

        Raises StoreUnavailableError.
        """
        await self._look(asyncio.get_running_loop().time() + self.deadline)
        nodes = {address for _, _, address in self._ranges}
        found: dict[Address | None, int] = {}
        for place, key in enumerate(keys):
            found.setdefault(self._owner(key_slot(key)), place)
            if found.keys() >= nodes:
                break
        return tuple(found.values())

    async def servers(self) -> Sequence[Link]:
        """The links to all nodes that take writes, by their addresses. Raises StoreUnavailableError."""
        await self._look(asyncio.get_running_loop().time() + self.deadline)
        return [self._link(address) for address in sorted({address for _, _, address in self._ranges})]

    async def scan(self, cursor: int, pattern: bytes, count: int) -> tuple[int, Sequence[bytes]]:
        """Some keys that fit, and where to go on, 0 at the end: node after node, by their addresses.

        While slots move between nodes, or a node fails over, keys may be missed. Raises StoreUnavailableError.
        """
        await self._look(asyncio.get_running_loop().time() + self.deadline)
        nodes = sorted({address for _, _, address in self._ranges})
        here, place = divmod(cursor, _CURSORS)
        if here >= len(nodes):
            return 0, ()
        following, keys = await self._link(nodes[here]).scan(place, pattern, count)
        if following:
            return here * _CURSORS + following, keys
        return (here + 1) * _CURSORS if here + 1 < len(nodes) else 0, keys

    async def connect(self, commands: Sequence[bytes]) -> AbstractConnection:
        """A new connection to some node, for messages, which a cluster passes on to all. Raises RedisError or OSError."""
        failure: Exception = OSError("no node of the cluster can be reached")
        for endpoint in self._known():
            try:
                return await endpoint.connect(commands)
            except (RedisError, OSError) as error:
                failure = error
        raise failure

    async def close(self) -> None:
        """As Link.close, for every node."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        await asyncio.gather(*(link.close() for link in (*self._links.values(), *self._leaving)))

    # The map.

    async def _of(self, slot: int, until: float) -> Address:
        """The node that takes writes for a slot. Raises StoreUnavailableError."""
        await self._look(until)
        address = self._owner(slot)
        if address is None:
            raise StoreUnavailableError(f"redis cluster at {self._endpoint.address}: no node has slot {slot}; assign it to one")
        return address

    def _owner(self, slot: int) -> Address | None:
        at = bisect_right(self._ranges, slot, key=lambda each: each[0]) - 1
        return self._ranges[at][2] if at >= 0 and slot <= self._ranges[at][1] else None

    def _sent_to(self, error: AskError, asked: Address) -> Address | None:
        """Where a redirection leads; None where that cannot be told.

        Without a host it is the one that was asked. "?" is the name of a node that has none, where names are preferred: then it
        is the one node of the map with this port, else the host that was asked too.
        """
        port = error.port
        if error.host not in {"", "?"}:
            return error.host, port
        fitting = {address for _, _, address in self._ranges if address[1] == port} - {asked}
        found = fitting.pop() if error.host == "?" and len(fitting) == 1 else (asked[0], port)
        return None if found == asked else found

    def _link(self, address: Address) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(self._endpoint.at(address), self._durability)
        return link

    def _known(self) -> list[Endpoint]:
        """Every server that may know the map: those of the last one, and those that the URL names; last those that are out."""
        addresses = dict.fromkeys((*(address for _, _, address in self._ranges), *self._endpoint.place.addresses))
        out = {address for address, link in self._links.items() if link.is_out}
        return [self._endpoint.at(address, _A_NODES_SHARE) for address in sorted(addresses, key=out.__contains__)]

    async def _look(self, until: float) -> None:
        """Know some map. Raises StoreUnavailableError."""
        if self._ranges:
            return
        looking = self._refresh()
        await asyncio.wait((looking,), timeout=until - asyncio.get_running_loop().time())
        if not self._ranges:
            told = looking.result() if looking.done() and not looking.cancelled() else None
            why = told or "no node told its map within the deadline"
            raise StoreUnavailableError(f"redis cluster at {self._endpoint.address}: {why}")

    def _refresh(self) -> asyncio.Task[str | None]:
        """A new look at the map, one at a time, and not more often than each `_PAUSE`; the old one stays where there is none."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._ask_for_map())
        return self._looking

    async def _ask_for_map(self) -> str | None:
        """Ask one node after the other; why there is no map, None when there is one."""
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, self._looked_at + _PAUSE - loop.time()))
            why = "no node is known"
            for endpoint in self._known():
                try:
                    connection = await endpoint.connect([])
                    try:
                        await connection.send_packed_command(_SLOTS, check_health=False)
                        async with asyncio.timeout(endpoint.deadline):
                            self._learn(await connection.read_response(), endpoint.place.addresses[0][0])
                    finally:
                        await drop(connection)
                except (RedisError, OSError) as error:
                    why = str(unavailable(endpoint.address, error, endpoint.hint))
                else:
                    await self._let_go()
                    return None
            return why
        finally:
            self._looked_at = loop.time()
            self._looking = None

    def _learn(self, told: object, teller: str) -> None:
        """Take over a map."""
        entries = cast("Sequence[tuple[int, int, Node]]", told)
        ranges = [(first, last, (_host(node) or teller, node[1])) for first, last, node, *_ in entries]
        if ranges:
            self._ranges = sorted(ranges)

    async def _let_go(self) -> None:
        """Close the links to nodes that take no writes any more."""
        for address in self._links.keys() - {address for _, _, address in self._ranges}:
            self._leaving.append(self._links.pop(address))
        while self._leaving:
            await self._leaving[-1].close()  # again, by `close`, where this is cancelled meanwhile
            self._leaving.pop()


def _host(node: Node) -> str:
    """Where a node is; "" for the host that was asked (its own is not known), as behind an address translation."""
    host, _, _, *more = node
    if host == b"?" and more:  # a host name is preferred, and it has none
        known = dict(zip(more[0][::2], more[0][1::2], strict=False))
        host = known.get(b"ip")
    return (host or b"").decode()
