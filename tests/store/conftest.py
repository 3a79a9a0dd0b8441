"""One harness for each store; a test that asks for `harness` runs against all of them, on real files and a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis, RedisCluster

from idemproxy.store import compressed
from idemproxy.store.base import Store
from tests.servers import redis_server
from tests.store.harness import CompressedHarness, Harness, MemoryHarness, SqliteHarness
from tests.store.redis_harness import RedisHarness
from tests.store.tls_server import TlsServer, tls_server
from tests.topologies import Cluster, Watched, cluster, watched


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A server that is started for the first test that needs one."""
    with redis_server() as server:
        yield server.url


@pytest.fixture(scope="session")
def sentinels() -> Iterator[Watched]:
    """A primary, replicas and Sentinels, as above."""
    with watched() as topology:
        yield topology


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """A cluster, as above."""
    with cluster() as topology:
        yield topology


@pytest.fixture(scope="session")
def tls() -> Iterator[TlsServer]:
    """A server that speaks TLS, as above; the oldest that is installed, since apt's is 7.0."""
    with tls_server() as server:
        yield server


@pytest.fixture(params=["memory", "compressed", "sqlite", "redis", "sentinel", "cluster", "tls"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    """An empty store of each kind."""
    made: Harness
    match request.param:
        case "memory":
            made = MemoryHarness()
        case "compressed":
            request.getfixturevalue("monkeypatch").setattr(compressed, "_LEAST", 0)  # the answers of the suite are short
            request.getfixturevalue("monkeypatch").setattr(compressed, "_WORTH", 10)
            made = CompressedHarness()
        case "sqlite":
            made = SqliteHarness(tmp_path)
        case "redis":
            url = request.getfixturevalue("redis_url")
            made = RedisHarness(url, Redis.from_url(url, protocol=2))
        case "sentinel":
            topology = request.getfixturevalue("sentinels")
            made = RedisHarness(topology.url, Redis(port=topology.primary().port, protocol=2))
        case "tls":
            server = request.getfixturevalue("tls")
            made = RedisHarness(server.url, Redis.from_url(server.plain_url, protocol=2), server.files)
        case _:
            topology = request.getfixturevalue("nodes")
            made = RedisHarness(topology.url, RedisCluster(host="127.0.0.1", port=topology.servers[0].port, protocol=2))
    yield made
    await made.close()


@pytest.fixture
async def store(harness: Harness) -> Store:
    """A store, empty and started."""
    return await harness.open()


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    """An empty directory, and the stores that a test opens on one file in it."""
    harness = SqliteHarness(tmp_path)
    yield harness
    await harness.close()
