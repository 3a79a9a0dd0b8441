"""Redis as it runs in production, on loopback ports: a primary with replicas and Sentinels, and a cluster."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.servers import RedisServer, free_port, redis_binary, redis_server

SERVICE = "main"
PATIENCE = 30.0
"""Seconds after which a topology that does not come to stand has failed."""

_SLOTS = 16_384

_DOWN_AFTER = 1200
"""Milliseconds. Sentinels connect anew once a second: with less than that they take each new primary for dead at once, and
fail over again and again."""


def client(port: int) -> Redis:
    """A plain client."""
    return Redis(port=port, protocol=2, socket_timeout=2, retry=Retry(NoBackoff(), 0))


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that has no event to wait for; whatever a server says meanwhile is not it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if condition():
                return
        except RedisError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


def followers(servers: Sequence[RedisServer], primary: RedisServer) -> list[RedisServer]:
    """Those of the servers that are connected to a primary as its replicas."""
    with client(primary.port) as asked:
        told = asked.info("replication")
    ports = {int(told[f"slave{number}"]["port"]) for number in range(told["connected_slaves"])}
    return [server for server in servers if server.port in ports]


class Watched:
    """A primary, its replicas, and the Sentinels that watch them."""

    def __init__(self, servers: list[RedisServer], sentinels: list[int]) -> None:
        self.servers = servers
        self.sentinels = sentinels
        """Their ports."""

    @property
    def url(self) -> str:
        """As `store.url` takes it."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{SERVICE}/0"

    def primary(self) -> RedisServer:
        """What the first Sentinel takes for the primary."""
        with client(self.sentinels[0]) as sentinel:
            _, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(port))

    def fail_over(self, how: Callable[[RedisServer], None]) -> RedisServer:
        """Do something to the primary, and wait until the Sentinels have another one; the old one."""
        old = self.primary()
        how(old)
        until(lambda: self.primary() is not old, "the Sentinels have made no other primary")
        return old

    def regroup(self) -> None:
        """Wait until the replicas that are left follow the present primary; until then they may confirm what the old one has."""
        until(lambda: len(followers(self.servers, self.primary())) >= len(self.servers) - 2, "a replica does not move on")

    def bring_back(self, old: RedisServer) -> None:
        """Let a server that was the primary follow the present one; Sentinels would take ten seconds to tell it."""
        with client(old.port) as server:
            server.replicaof("127.0.0.1", self.primary().port)
        self.settle()

    def settle(self) -> None:
        """Wait until every server runs, the replicas follow the primary, and the Sentinels know it."""

        def settled() -> bool:
            with client(self.primary().port) as primary:
                told = primary.info("replication")
            followers = [told[f"slave{number}"]["state"] for number in range(told["connected_slaves"])]
            return told["role"] == "master" and followers == ["online"] * (len(self.servers) - 1) and self._healthy()

        until(settled, "the replicas do not follow")

    def _healthy(self) -> bool:
        for port in self.sentinels:
            with client(port) as sentinel:
                state = sentinel.sentinel_masters()[SERVICE]
                others = sentinel.sentinel_slaves(SERVICE)
            well = [replica for replica in others if not replica["is_sdown"] and not replica["is_disconnected"]]
            if state["flags"] != "master" or len(well) != len(self.servers) - 1:
                return False
            if state["num-other-sentinels"] != len(self.sentinels) - 1:
                return False
        return True


@contextmanager
def watched(replicas: int = 2, sentinels: int = 3, **settings: str) -> Iterator[Watched]:
    """A primary, replicas, and Sentinels that find a primary dead after 1.2 seconds; `settings` as redis_server's."""
    usual = {"repl_diskless_sync_delay": "0", "repl_ping_replica_period": "1"} | settings
    with ExitStack() as stack:
        primary = stack.enter_context(redis_server(appendonly=False, **usual))
        followers = [
            stack.enter_context(redis_server(appendonly=False, replicaof=f"127.0.0.1 {primary.port}", **usual))
            for _ in range(replicas)
        ]
        ports = [stack.enter_context(_sentinel(primary.port, quorum=sentinels // 2 + 1)) for _ in range(sentinels)]
        topology = Watched([primary, *followers], ports)
        topology.settle()
        yield topology


@contextmanager
def _sentinel(primary: int, quorum: int) -> Iterator[int]:
    with tempfile.TemporaryDirectory(prefix="idemproxy-sentinel-") as directory:
        port, file = free_port(), Path(directory) / "sentinel.conf"
        lines = (
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {directory}",
            f"logfile {directory}/log",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 3000",
        )
        file.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen(
            [redis_binary(), str(file), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield port
        finally:
            process.kill()
            process.wait()


class Cluster:
    """Primaries, each with a replica."""

    def __init__(self, servers: list[RedisServer]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        """As `store.url` takes it: two of the nodes, since a URL seldom names all."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{server.port}' for server in self.servers[:2])}"

    def primaries(self) -> list[RedisServer]:
        """The nodes that have slots, as some living node sees it, in the order of their slots."""
        for server in self.servers:
            try:
                with client(server.port) as node:
                    told = node.execute_command("CLUSTER", "SLOTS")
            except RedisError:
                continue
            ports = [entry[2][1] for entry in sorted(told)] if isinstance(told, list) else [key[1] for key in told]
            return [next(server for server in self.servers if server.port == port) for port in dict.fromkeys(ports)]
        raise RuntimeError("no node is alive")

    def settle(self) -> None:
        """Wait until every node says that all is well, and each primary has its replica at its side."""

        def settled() -> bool:
            for server in self.servers:
                with client(server.port) as node:
                    state, role = node.execute_command("CLUSTER", "INFO"), node.info("replication")
                well = role.get("master_link_status", "up") == "up" and (role["role"] == "slave" or role["connected_slaves"] > 0)
                told = state if isinstance(state, dict) else dict(line.split(":") for line in state.decode().split())
                if told["cluster_state"] != "ok" or int(told["cluster_known_nodes"]) != len(self.servers) or not well:
                    return False
            return True

        until(settled, "the cluster does not come to stand")

    def bring_back(self, _old: RedisServer) -> None:
        """Wait until a server that was a primary, and runs again, follows its successor; nobody need tell it."""
        self.settle()  # not before: as long as it takes itself for a primary it has no replicas

    def fail_over(self, how: Callable[[RedisServer], None]) -> RedisServer:
        """Do something to the first primary, and wait until its replica has its slots; the old one."""
        old = self.primaries()[0]
        how(old)
        until(lambda: self.state_without(old) == "ok" and old not in self._seen_by_others(old), "no replica took over")
        return old

    def state_without(self, server: RedisServer) -> str:
        """What another node says of the cluster."""
        other = next(each for each in self.servers if each is not server)
        with client(other.port) as node:
            told = node.execute_command("CLUSTER", "INFO")
        state = told if isinstance(told, dict) else dict(line.split(":") for line in told.decode().split())
        return str(state["cluster_state"])

    def _seen_by_others(self, server: RedisServer) -> list[RedisServer]:
        return Cluster([each for each in self.servers if each is not server] + [server]).primaries()


@contextmanager
def cluster(primaries: int = 3, **settings: str) -> Iterator[Cluster]:
    """A cluster that finds a node dead after half a second; `settings` of the servers as redis_server's."""
    usual = {"cluster_enabled": "yes", "cluster_node_timeout": "500", "repl_diskless_sync_delay": "0"} | settings
    with ExitStack() as stack:
        servers = [stack.enter_context(redis_server(appendonly=False, **usual)) for _ in range(2 * primaries)]
        names = [_joined(server, number, servers[0], primaries) for number, server in enumerate(servers)]
        for server, name in zip(servers[primaries:], names, strict=False):
            _follow(server, name)
        topology = Cluster(servers)
        topology.settle()
        yield topology


def _joined(server: RedisServer, number: int, first: RedisServer, primaries: int) -> str:
    """Let a node meet the first one, and give it its share of the slots if it is to be a primary; the node's name."""
    share = _SLOTS // primaries
    with client(server.port) as node:
        node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        if number < primaries:
            last = _SLOTS - 1 if number == primaries - 1 else (number + 1) * share - 1
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", str(number * share), str(last))
        node.execute_command("CLUSTER", "MEET", "127.0.0.1", str(first.port), first.settings["cluster-port"])
        return str(node.execute_command("CLUSTER", "MYID").decode())


def _follow(server: RedisServer, name: str) -> None:
    """Make a node the replica of another, as soon as it knows that one."""
    with client(server.port) as node:
        until(lambda: bool(node.execute_command("CLUSTER", "REPLICATE", name)), "a node is not known")


@contextmanager
def migrating(nodes: Cluster, key: bytes) -> Iterator[tuple[Redis, Redis]]:
    """The slot of a key on its way between two primaries, as it is before the first key has moved: clients of both."""
    slot = key_slot(key)
    primaries = nodes.primaries()
    with client(primaries[0].port) as asked:
        told = asked.execute_command("CLUSTER", "SLOTS")
    ports = (
        [entry[2][1] for entry in told if entry[0] <= slot <= entry[1]]
        if isinstance(told, list)
        else [entry["primary"][1] for (first, last), entry in told.items() if first <= slot <= last]
    )
    other = next(server.port for server in primaries if server.port != ports[0])
    with client(ports[0]) as source, client(other) as target:
        names = [node.execute_command("CLUSTER", "MYID").decode() for node in (source, target)]
        target.execute_command("CLUSTER", "SETSLOT", str(slot), "IMPORTING", names[0])
        source.execute_command("CLUSTER", "SETSLOT", str(slot), "MIGRATING", names[1])
        try:
            yield source, target
        finally:  # what has moved stays there, and is not seen any more
            for node in (source, target):
                node.execute_command("CLUSTER", "SETSLOT", str(slot), "STABLE")
