"""The processes of the fault suite, and what is done to them.

Stores, each with two proxies before one upstream: a durable Redis, reached through a relay that can lose its replies, a SQLite
file, and Redis with Sentinels or as a cluster. A killed proxy comes back with its spool, and so is its own heir.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any, Final

from tests.process.chaos import schedule
from tests.process.chaos.client import Proxy
from tests.process.chaos.schedule import Fault, Kind
from tests.processes import Program
from tests.servers import RedisServer, Relay, free_port, redis_server, relay
from tests.topologies import Cluster, Watched, client, cluster, followers, watched

TOPOLOGIES: Final[Mapping[str, Callable[[], AbstractContextManager[Watched | Cluster]]]] = {
    "sentinel": watched,
    "cluster": cluster,
}
LEASE: Final = 3
SETTLE: Final = 5
PROXIES: Final = 2
"""For each store."""
UNREPLICATED: Final = 0.1
"""Seconds for which a primary is cut off from its replicas, and not from its clients, before it is killed."""
BEHIND: Final = 1.0
"""Seconds for which it is cut off from one of them; Sentinels would take that one for dead a little later."""


@dataclass(slots=True)
class Served:
    """A program that is killed and started again with the same arguments; `port` is where it listened last."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    awaits: int
    port: int = 0
    program: Program | None = None
    complaints: list[str] = field(default_factory=list)
    """Lines of standard error that no program should have written."""

    def start(self) -> None:
        """Start it, and return when it listens."""
        self.program = Program(*self.arguments, awaits=self.awaits, environment=dict(self.environment))
        self.port = self.program.port

    def kill(self) -> None:
        """As kill -9."""
        if self.program is not None:
            self.program.kill()
            self.complaints += [
                line for line in self.program.told if line.startswith(("Traceback", "CRITICAL", "Task exception"))
            ]
            self.program = None

    def pause(self) -> None:
        """Stop it from running."""
        if self.program is not None:
            self.program.send(SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        if self.program is not None:
            self.program.send(SIGCONT)


class Stage:
    """Everything that runs, by name."""

    def __init__(self) -> None:
        self.served: dict[str, Served] = {}
        self.redis: RedisServer | None = None
        self.relay: Relay | None = None
        self.topologies: dict[str, Watched | Cluster] = {}
        self.stores: dict[str, list[Proxy]] = {}
        """The proxies on each store."""

    def targets(self) -> dict[str, Sequence[Kind]]:
        """What can be done to what."""
        found: dict[str, Sequence[Kind]] = {name: schedule.PROXY for name in self.served if name != "upstream"}
        found["upstream"] = schedule.UPSTREAM
        if self.redis is not None:
            found["redis"] = schedule.REDIS
        return found | dict.fromkeys(self.topologies, schedule.TOPOLOGY)

    async def suffer(self, fault: Fault) -> None:
        """Let a fault happen, and see to its end."""
        if fault.target in self.topologies:
            old = await self.fail_over(fault.target, fault.verb)
            if isinstance(topology := self.topologies[fault.target], Watched):
                await asyncio.to_thread(topology.regroup)
            await asyncio.sleep(fault.seconds)
            await self.bring_back(fault.target, old, fault.verb)
            return
        target: Served | RedisServer | None = self.redis if fault.target == "redis" else self.served[fault.target]
        assert target is not None
        match fault.verb:
            case schedule.KILL:
                await asyncio.to_thread(target.kill)
                await asyncio.sleep(fault.seconds)
                await asyncio.to_thread(target.start)
            case schedule.STOP:
                target.pause()
                await asyncio.sleep(fault.seconds)
                target.resume()
            case schedule.CUT if self.relay is not None:
                self.relay.cut()
            case schedule.LOSE if self.relay is not None:
                self.relay.cut_next_reply()
            case unknown:
                raise AssertionError(f"nobody knows how to {unknown}")
        if self.relay is not None:
            self.relay.sent.clear()

    async def fail_over(self, store: str, verb: str) -> RedisServer:
        """Kill or stop the primary (the first one, of a cluster), and return when another has its place: the old one."""
        topology = self.topologies[store]

        def harm(primary: RedisServer) -> None:
            replicas = followers(topology.servers, primary)
            match verb:
                case schedule.FAIL_OVER:
                    _kill_without(primary, replicas, UNREPLICATED)
                case schedule.LAG:
                    _kill_without(primary, replicas[:1], BEHIND)
                case schedule.DEPOSE:
                    primary.pause()

        return await asyncio.to_thread(topology.fail_over, harm)

    async def bring_back(self, store: str, old: RedisServer, verb: str) -> None:
        """Let the old primary run again, and return when it follows the new one: told so when it was killed, else by itself."""
        topology = self.topologies[store]
        if verb == schedule.DEPOSE:
            old.resume()
            await asyncio.to_thread(topology.settle)
        else:
            await asyncio.to_thread(old.start)
            await asyncio.to_thread(topology.bring_back, old)

    def complaints(self) -> list[str]:
        """What proxies wrote to standard error and should not have."""
        return [f"{name}: {line.strip()}" for name, each in self.served.items() for line in each.complaints]

    def _end(self) -> None:
        for each in self.served.values():
            each.resume()
            each.kill()

    async def _open(
        self, stores: Sequence[str], directory: Path, environment: Mapping[str, str], replicas: int, stack: AsyncExitStack
    ) -> None:
        arguments = ("tests.process.chaos.upstream", "--port", str(free_port()), "--ledger", str(directory / "ledger"))
        self.served["upstream"] = Served(arguments, {}, awaits=1)
        stack.callback(self._end)
        await asyncio.to_thread(self.served["upstream"].start)
        for store in stores:
            settings: dict[str, Any] = {"url": await self._store(store, directory, stack)}
            if replicas and store in self.topologies:
                settings["durability"] = {"replicas": replicas}
            for number in range(PROXIES):
                name = f"{store}-{number}"
                self.served[name] = self._proxy(directory / name, settings, environment)
            names = [f"{store}-{number}" for number in range(PROXIES)]
            self.stores[store] = [Proxy(name, _port_of(self.served[name])) for name in names]
        await asyncio.gather(*(asyncio.to_thread(each.start) for each in self.served.values() if each.program is None))

    async def _store(self, store: str, directory: Path, stack: AsyncExitStack) -> str:
        if store == "sqlite":
            return f"sqlite:///{directory / 'records.db'}"
        if store in TOPOLOGIES:
            self.topologies[store] = stack.enter_context(TOPOLOGIES[store]())
            return self.topologies[store].url
        self.redis = stack.enter_context(redis_server(appendonly=True))
        self.relay = await stack.enter_async_context(relay(self.redis.port))
        return f"redis://127.0.0.1:{self.relay.port}/0"

    def _proxy(self, directory: Path, store: Mapping[str, Any], environment: Mapping[str, str]) -> Served:
        directory.mkdir()
        file = directory / "idemproxy.yaml"
        file.write_text(json.dumps(_settings(self.served["upstream"].port, store, directory)), "utf-8")
        return Served(("idemproxy", "run", "--config", str(file)), environment, awaits=2)


def _kill_without(primary: RedisServer, replicas: Sequence[RedisServer], seconds: float) -> None:
    """Kill a primary that has acknowledged writes which these replicas lack, as one does that loses its network bit by bit.

    They are stopped, so that they do not connect again, and the primary closes the connections of all replicas; it goes on
    serving its clients for so many seconds, and is killed; then they run again.
    """
    for replica in replicas:
        replica.pause()
    with client(primary.port) as admin:
        admin.client_kill_filter(_type="replica")
    time.sleep(seconds)
    primary.kill()
    for replica in replicas:
        replica.resume()


def _port_of(served: Served) -> Callable[[], int]:
    return lambda: served.port


def _settings(upstream: int, store: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """A route that holds what is unknown and one that probes, with short times; what may be stopped is waited for longer."""
    url = f"http://127.0.0.1:{upstream}"
    stamped = {"key": "required", "stamp": {"header": "X-Operation"}}
    probe = {
        "get": "/probe/effects/{key}",
        "found": "effects[0]",
        "absent": "length(effects) == `0`",
        "settle": f"{SETTLE}s",
        "answer": {"status": 201},
    }
    return {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "store": store,
        "spool": {"directory": str(directory / "spool")},
        "access_log": False,
        "defaults": {"lease": f"{LEASE}s", "wait": "2s"},
        "upstreams": {
            "hold": {"url": url, "timeouts": {"connect": "1s", "first_byte": "2s", "idle": "2s", "total": "10s"}},
            "probe": {"url": url, "timeouts": {"connect": "1s", "first_byte": "12s", "idle": "10s", "total": "20s"}},
        },
        "routes": [
            {"name": "hold", "match": {"path": "/hold"}, "upstream": "hold", **stamped},
            {"name": "probe", "match": {"path": "/probe"}, "upstream": "probe", **stamped, "on_unknown": "probe", "probe": probe},
        ],
    }


@asynccontextmanager
async def stage(
    stores: Sequence[str], directory: Path, environment: Mapping[str, str], replicas: int = 0
) -> AsyncIterator[Stage]:
    """The proxies on these stores (`redis`, `sqlite`, `sentinel`, `cluster`), with what they need; all ended with the context.

    `environment` is what the proxies get beside this process's own; `replicas` is store.durability's, where there are any.
    """
    built = Stage()
    async with AsyncExitStack() as stack:
        await built._open(stores, directory, environment, replicas, stack)  # noqa: SLF001 - its own module
        yield built
