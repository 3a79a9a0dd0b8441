"""Who is measured by bench.store_operations: our stores, and the same Redis store over redis-py as one would use it.

All of them on Redis send the same Lua scripts with the same arguments and make the same records of the replies. What differs
is only how a command reaches the server and how its reply comes back. Add one to CONTENDERS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final, Literal, TypeAlias, cast

from redis.asyncio import Redis

from bench.stage import Stage
from idemproxy.store.base import Store
from idemproxy.store.base_host import host_clock
from idemproxy.store.redis import RedisStore
from idemproxy.store.redis_durability import AS_CONFIGURED, Durability
from idemproxy.store.redis_endpoint import Endpoint
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_link import Link
from idemproxy.store.redis_script import CLAIM, COMPLETE, READ, Part, Script
from idemproxy.store.redis_url import read_url
from idemproxy.store.sqlite import SqliteStore

Work: TypeAlias = Literal["first", "replay", "read"]

_LUA: Final = files("idemproxy.store") / "lua"
_PATIENCE: Final = 10.0
"""Seconds: the machine may be busy, and a run is no place for refusals."""
_ONE_REPLICA: Final = Durability(replicas=1, timeout=5.0)


@dataclass(frozen=True, slots=True)
class Contender:
    """A store that is not started yet. `make` is called in the loop; the ids that it leaves are of the processes behind it."""

    name: str
    works: tuple[Work, ...]
    make: Callable[[Stage], tuple[Store, tuple[int, ...]]]


class PoolLink(Link):
    """A redis-py client with its connection pool, and its registered scripts: what its documentation shows."""

    def __init__(self, url: str) -> None:
        super().__init__(Endpoint(read_url(url), deadline=_PATIENCE), AS_CONFIGURED)
        self._client = Redis.from_url(url, protocol=2)
        self._scripts = {script.name: self._client.register_script(_source(script)) for script in (CLAIM, COMPLETE, READ)}

    async def load(self) -> None:
        """Make the server know the scripts, so that nobody pays for that later."""
        for script in self._scripts.values():
            await self._client.script_load(script.script)

    async def run(self, script: Script, *parts: Part) -> Reply:
        """As Link.run; one connection of the pool for each call."""
        keys = cast("Sequence[bytes]", parts[: script.keys])
        return cast("Reply", await self._scripts[script.name](keys=keys, args=parts[script.keys :]))

    async def close(self) -> None:
        """As Link.close."""
        await self._client.aclose()
        await super().close()


class DurablePoolLink(PoolLink):
    """The same, with a WAIT for one replica behind each write, in one pipeline, which is how one asks for it."""

    async def run(self, script: Script, *parts: Part) -> Reply:
        """As Link.run."""
        async with self._client.pipeline(transaction=False) as pipeline:
            pipeline.evalsha(self._scripts[script.name].sha, script.keys, *parts)  # its scripts would ask SCRIPT EXISTS each time
            pipeline.wait(_ONE_REPLICA.replicas, round(_ONE_REPLICA.timeout * 1000))
            reply, replicas = await pipeline.execute()
        if replicas < _ONE_REPLICA.replicas:
            raise RuntimeError(f"{replicas} replicas have a write")
        return cast("Reply", reply)


@dataclass(slots=True)
class _Batch:
    """Calls of one turn of the loop that leave together."""

    calls: list[tuple[Script, Sequence[Part]]] = field(default_factory=list)
    futures: list[asyncio.Future[Reply]] = field(default_factory=list)


class PipelineLink(PoolLink):
    """What comes in one turn of the loop leaves as one redis-py pipeline: the pooled client at its best."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._batch = _Batch()
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self, script: Script, *parts: Part) -> Reply:
        """As Link.run."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        if not self._batch.calls:
            loop.call_soon(self._send)
        self._batch.calls.append((script, parts))
        self._batch.futures.append(future)
        return await future

    def _send(self) -> None:
        batch, self._batch = self._batch, _Batch()
        sending = asyncio.create_task(self._execute(batch))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _execute(self, batch: _Batch) -> None:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for script, parts in batch.calls:
                    pipeline.evalsha(self._scripts[script.name].sha, script.keys, *parts)  # as above
                replies = await pipeline.execute()
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and ends the run
            for future in batch.futures:
                future.set_exception(error)
        else:
            for future, reply in zip(batch.futures, replies, strict=True):
                future.set_result(reply)


class _StoreOver(RedisStore):
    """The Redis store with another link in the place of its own."""

    def __init__(self, url: str, link: PoolLink, prefix: str) -> None:
        super().__init__(url, prefix=prefix)
        self._link = self._pool = link

    async def start(self) -> None:
        """As RedisStore.start."""
        await self._pool.load()


def _source(script: Script) -> bytes:
    """The whole text of a script, as the server gets it."""
    return b"\n".join((_LUA / f"{part}.lua").read_bytes() for part in ("prelude", script.name))


def _single(stage: Stage) -> tuple[str, tuple[int, ...]]:
    port, pid = stage.redis
    return f"redis://127.0.0.1:{port}/0", (pid,)


def _replicated(stage: Stage) -> tuple[str, tuple[int, ...]]:
    port, *pids = stage.replicated_redis
    return f"redis://127.0.0.1:{port}/0", tuple(pids)


def _ours(stage: Stage) -> tuple[Store, tuple[int, ...]]:
    url, pids = _single(stage)
    return RedisStore(url, prefix="ours:", deadline=_PATIENCE), pids


def _over(link: Callable[[str], PoolLink], prefix: str) -> Callable[[Stage], tuple[Store, tuple[int, ...]]]:
    def make(stage: Stage) -> tuple[Store, tuple[int, ...]]:
        url, pids = _single(stage)
        return _StoreOver(url, link(url), prefix), pids

    return make


def _ours_durable(stage: Stage) -> tuple[Store, tuple[int, ...]]:
    url, pids = _replicated(stage)
    return RedisStore(url, prefix="ours:", deadline=_PATIENCE, durability=_ONE_REPLICA), pids


def _pool_durable(stage: Stage) -> tuple[Store, tuple[int, ...]]:
    url, pids = _replicated(stage)
    return _StoreOver(url, DurablePoolLink(url), "pool:"), pids


def _sqlite(stage: Stage) -> tuple[Store, tuple[int, ...]]:
    return SqliteStore(stage.directory / "records.db", clock=host_clock()), ()


_ALL_WORKS: Final[tuple[Work, ...]] = ("first", "replay", "read")
CONTENDERS: Final = (
    Contender("ours", _ALL_WORKS, _ours),
    Contender("redis-py pool", _ALL_WORKS, _over(PoolLink, "pool:")),
    Contender("redis-py pipelines", _ALL_WORKS, _over(PipelineLink, "pipelines:")),
    Contender("ours, 1 replica", ("first",), _ours_durable),
    Contender("redis-py pool, 1 replica", ("first",), _pool_durable),
    Contender("ours on SQLite", _ALL_WORKS, _sqlite),
)
BASE: Final = {"ours": "redis-py pool", "redis-py pipelines": "redis-py pool", "ours, 1 replica": "redis-py pool, 1 replica"}
"""Contender -> the one that it is held against."""
