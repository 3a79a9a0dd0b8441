"""What `store.url` says of Redis servers: which they are, how they are found, and who we are to them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from idemproxy.store.base import StoreError

Address = tuple[str, int]
"""Host and port."""


def shown(address: Address) -> str:
    """An address for messages, IPv6 in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Topology(StrEnum):
    """How the server that takes our writes is found."""

    SERVER = "server"
    SOCKET = "socket"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_TOPOLOGIES: Final = {
    "redis": Topology.SERVER,
    "rediss": Topology.SERVER,
    "unix": Topology.SOCKET,
    "redis+sentinel": Topology.SENTINEL,
    "rediss+sentinel": Topology.SENTINEL,
    "redis+cluster": Topology.CLUSTER,
    "rediss+cluster": Topology.CLUSTER,
}
_OPTIONS: Final = {Topology.SOCKET: {"db", "username", "password"}, Topology.SERVER: {"db"}, Topology.SENTINEL: {"sentinel_auth"}}
_PORTS: Final = {Topology.SENTINEL: 26379}


@dataclass(frozen=True, slots=True)
class Place:
    """The servers of a URL. `service` is what Sentinels call the primary; they get our credentials if `sentinel_auth`."""

    topology: Topology
    addresses: tuple[Address, ...] = ()
    socket: str = ""
    service: str = ""
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    sentinel_auth: bool = False

    @property
    def shown(self) -> str:
        """For messages and names, without credentials."""
        hosts = ",".join(map(shown, self.addresses))
        return self.socket or (f"{self.service} of {hosts}" if self.service else hosts)

    def at(self, address: Address) -> Place:
        """One server, reached in the same way."""
        return replace(self, topology=Topology.SERVER, addresses=(address,), service="")


def read_url(url: str) -> Place:
    """The place that a URL names. Raises StoreError for what makes no sense, or would be misread, never showing a password."""
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise StoreError(f"store.url is not a URL: {error}") from error
    topology = _TOPOLOGIES.get(parts.scheme)
    if topology is None:
        known = ", ".join(f"{scheme}://" for scheme in _TOPOLOGIES)
        raise StoreError(f"store.url begins with {parts.scheme or 'nothing'}://; it must begin with one of {known}")
    if unknown := options.keys() - _OPTIONS.get(topology, set()):
        raise StoreError(f"store.url has options that are not known: {', '.join(sorted(unknown))}")
    said = {name: values[-1] for name, values in options.items()}
    if said.get("sentinel_auth", "yes") not in {"yes", "no"}:
        raise StoreError(f"store.url says sentinel_auth={said['sentinel_auth']}; it must be yes or no")
    place = Place(
        topology,
        username=unquote(parts.username or "") or said.get("username"),
        password=unquote(parts.password or "") or said.get("password"),
        is_tls=parts.scheme.startswith("rediss"),
        sentinel_auth=said.get("sentinel_auth") == "yes",
    )
    if topology is Topology.SOCKET:
        if parts.hostname or not parts.path.strip("/"):
            raise StoreError("store.url names no socket; it must read unix:///path/to/redis.sock")
        return replace(place, socket=unquote(parts.path), database=_database(said.get("db", "")))
    place = replace(place, addresses=_addresses(parts, _PORTS.get(topology, 6379)))
    path = parts.path.strip("/")
    match topology:
        case Topology.CLUSTER if path not in {"", "0"}:
            raise StoreError("store.url names a database, and a cluster has none but 0: end it with the last host")
        case Topology.SENTINEL:
            service, _, database = path.partition("/")
            if not service:
                raise StoreError("store.url names no service; it must read redis+sentinel://host:26379,host:26379/service/0")
            return replace(place, service=unquote(service), database=_database(database))
        case _:
            return replace(place, database=_database(said.get("db") or path))


def _database(text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise StoreError(f"store.url names the database {text!r}; it must be a whole number, as in redis://host:6379/0")
    return int(text or 0)


def _addresses(parts: SplitResult, usual_port: int) -> tuple[Address, ...]:
    """Every host with its port, in their order."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if len(hosts) > 1 and _TOPOLOGIES[parts.scheme] is Topology.SERVER:
        raise StoreError("store.url names several hosts; for these it must begin with redis+sentinel:// or redis+cluster://")
    found = []
    for text in hosts:
        try:
            one = urlsplit(f"//{text}")
            host, port = one.hostname, one.port
        except ValueError as error:
            raise StoreError(f"store.url is not a URL: {error}") from error
        if not host:
            raise StoreError("store.url names no host")
        found.append((host, usual_port if port is None else port))
    return tuple(found)
