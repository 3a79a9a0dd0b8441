"""What real servers tell of themselves, alone and together, to a user who may ask and to one who may not."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from redis import Redis

from idemproxy.store.base import Store
from idemproxy.store.base_finding import Level
from idemproxy.store.inspection import Inspection
from idemproxy.store.redis_durability import Durability
from tests.servers import free_port, redis_server, tls_binary
from tests.store.redis_steps import NARROW, opened, plain, refusal
from tests.topologies import Cluster, Watched


async def found(store: Store) -> dict[str, Level]:
    """The level of each finding, by what was looked at; where one thing has several, the worst."""
    order = list(Level)
    worst: dict[str, Level] = {}
    for finding in await store.inspect():
        worst[finding.what] = max(worst.get(finding.what, Level.FINE), finding.level, key=order.index)
    return worst


async def test_a_safe_server() -> None:
    """A server as the documentation asks for it has nothing against it."""
    with redis_server(appendonly=True) as server:
        async with opened(server.url) as store:
            assert dict.fromkeys(
                ("version", "maxmemory-policy", "persistence", "replication", "clock"), Level.FINE
            ) == await found(store)


async def test_a_server_that_is_away() -> None:
    """Nothing is made up of a server that does not answer: that it is away is told, and what to do."""
    with redis_server(appendonly=True) as server:
        async with opened(server.url) as store:
            server.stop()
            said = await refusal(store.inspect())

    assert "see that the server runs" in said


async def test_a_user_who_may_not_ask() -> None:
    """Where CONFIG and INFO are hidden, everything but the clock is not verified, and nothing is an error."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        async with plain(server.url) as client:
            await client.execute_command("ACL", "SETUSER", "narrow", "on", ">pass", "~*", "&*", *NARROW)  # type: ignore[no-untyped-call]
        async with opened(server.url.replace("redis://", "redis://narrow:pass@")) as store:
            hidden = await found(store)

    unverified = dict.fromkeys(("version", "maxmemory-policy", "persistence", "replication"), Level.UNVERIFIED)
    assert {**unverified, "clock": Level.FINE} == hidden


async def test_a_user_who_may_ask_for_info_alone() -> None:
    """Without CONFIG the policy and the log are known from INFO, and how often that log is flushed is not."""
    with redis_server(appendonly=True) as server:
        async with plain(server.url) as client:
            await client.execute_command("ACL", "SETUSER", "guest", "on", ">pass", "~*", "&*", "+@all", "-config")  # type: ignore[no-untyped-call]
        async with opened(server.url.replace("redis://", "redis://guest:pass@")) as store:
            told = await found(store)

    assert (Level.FINE, Level.UNVERIFIED) == (told["maxmemory-policy"], told["persistence"])


async def test_replicas_behind_sentinels(sentinels: Watched) -> None:
    """The replicas of the primary are seen, and that nobody waits for them."""
    async with opened(sentinels.url) as store:
        without = await found(store)
    async with opened(sentinels.url, durability=Durability(replicas=2)) as store:
        confirmed = await found(store)
    async with opened(sentinels.url, durability=Durability(replicas=3)) as store:
        too_few = await found(store)

    assert [Level.WARNING, Level.FINE, Level.WARNING] == [each["replication"] for each in (without, confirmed, too_few)]


async def test_one_node_of_a_cluster(nodes: Cluster) -> None:
    """Every node that takes writes is looked at, and what is wrong with one of them says which it is."""
    odd = nodes.primaries()[1]
    with Redis(port=odd.port, protocol=2) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        async with opened(nodes.url) as store:
            errors = [finding for finding in await store.inspect() if finding.level is Level.ERROR]
        client.config_set("maxmemory-policy", "noeviction")

    assert [("maxmemory-policy", "eviction")] == [(finding.what, finding.risk) for finding in errors]
    assert errors[0].text.startswith(f"127.0.0.1:{odd.port}: allkeys-lru")


async def test_the_oldest_server_has_no_confirmation_of_the_disk() -> None:
    """Redis 7.0 lacks WAITAOF: to ask for it is found at the start, and not by the first claim."""
    binary = tls_binary()
    if binary is None:
        pytest.skip("no Redis 7.0 is installed: apt-get install redis-server")
    with redis_server(binary=binary, appendonly=True) as server, Redis(port=server.port, protocol=2) as client:
        if tuple(map(int, client.info("server")["redis_version"].split(".")[:2])) >= (7, 2):
            pytest.skip("the server that is installed is newer than 7.0")
        async with opened(server.url, durability=Durability(aof=True)) as store:
            told = await found(store)

    assert Level.ERROR is told["durability"]


async def test_a_replica_is_an_outage() -> None:
    """A server that is a replica may be the primary soon: that is an error, but one that heals."""
    with redis_server(appendonly=True) as server:
        async with opened(server.url) as store, plain(server.url) as client:
            await client.replicaof("127.0.0.1", str(free_port()))
            errors = [(finding.what, finding.heals) for finding in await store.inspect() if finding.level is Level.ERROR]

    assert [("replication", True)] == errors


# Again and again.


class Told:
    """Everything that an inspection has told."""

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}

    def __call__(self, counts: Mapping[str, int]) -> None:
        """Take the counts of the last look."""
        self.counts = counts


async def test_a_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong under a running proxy is logged when it is new, and again when it has gone; each look is counted."""
    caplog.set_level(logging.INFO, "idemproxy")
    told = Told()
    counts = []
    with redis_server(appendonly=True) as server:
        async with opened(server.url) as store, plain(server.url) as client:
            caplog.clear()  # of what the start has told
            inspection = Inspection(store, frozenset(), told)
            for policy in ("noeviction", "allkeys-lru", "allkeys-lru", "volatile-lru", "noeviction", "noeviction"):
                await client.config_set("maxmemory-policy", policy)
                await inspection.look()
                counts.append((told.counts.get("error", 0), inspection.note() is not None, inspection.refusals() != []))

    assert [(0, False, False), *[(1, True, True)] * 3, *[(0, False, False)] * 2] == counts
    assert [
        ("ERROR", "store: maxmemory-policy: allkeys-lru"),
        ("ERROR", "store: maxmemory-policy: volatile-lru"),
        ("INFO", "store: maxmemory-policy: ok: noeviction"),
    ] == [
        (record.levelname, ":".join(record.getMessage().split(":")[: 3 + (record.levelno == logging.INFO)]))
        for record in caplog.records
    ]


async def test_an_accepted_risk_is_told_and_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """With `accept_risk: [eviction]` the policy is logged as accepted, and is no reason not to start."""
    told = Told()
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        async with opened(server.url) as store:
            inspection = Inspection(store, frozenset({"eviction"}), told)
            await inspection.look()

    assert ([], None, 1) == (inspection.refusals(), inspection.note(), told.counts["accepted"])
    assert ["store: maxmemory-policy: accepted: allkeys-lru"] == [
        record.getMessage().partition(": a full")[0] for record in caplog.records if record.levelname == "WARNING"
    ]


async def test_a_server_that_is_away_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """What was found stays known while the server cannot be seen: those who need the store tell of the outage."""
    with redis_server(appendonly=True, maxmemory_policy="allkeys-lru") as server:
        async with opened(server.url) as store:
            inspection = Inspection(store, frozenset(), Told())
            await inspection.look()
            server.stop()
            await inspection.look()

    assert 1 == len(caplog.records)
    assert (inspection.note() or "").startswith("maxmemory-policy: allkeys-lru")
