"""What a Redis server's replies mean, and what becomes of findings: pure functions, so each case is a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from idemproxy.store.base_finding import Finding, Level, judged, merged
from idemproxy.store.redis_checks import Seen, look, read_info
from idemproxy.store.redis_durability import AS_CONFIGURED, Durability

SAFE: Final = {
    "redis_version": "7.2.5",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "role": "master",
    "connected_slaves": "0",
}
SETTINGS: Final = {"appendfsync": "always", "save": "3600 1", "min-replicas-to-write": "0"}
ONE: Final = {"connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=0"}
TWO: Final = ONE | {"slave1": "ip=10.0.0.3,port=6379,state=online,offset=1,lag=0"}
LOADS: Final = {"connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0"}
REPLICATED: Final = Durability(replicas=1)
ON_DISK: Final = Durability(aof=True)


def found(
    info: Mapping[str, str | None] | None = None,
    config: Mapping[str, str | None] | None = None,
    durability: Durability = AS_CONFIGURED,
    *,
    ahead: float | None = 0.0,
    has_waitaof: bool | None = True,
) -> dict[str, tuple[Level, str]]:
    """Level and text of each finding, by what was looked at, on a safe server but for what is said; None hides a field."""
    told = {name: value for name, value in {**SAFE, **(info or {})}.items() if value is not None}
    settings = {name: value for name, value in {**SETTINGS, **(config or {})}.items() if value is not None}
    server = Seen(told, settings, ahead, has_waitaof)
    return {finding.what: (finding.level, str(finding)) for finding in look(server, durability)}


def test_a_safe_server_is_fine() -> None:
    """There is nothing to say against a server that is configured as the documentation asks."""
    assert {
        "version": (Level.FINE, "Redis 7.2.5"),
        "maxmemory-policy": (Level.FINE, "noeviction: a full memory refuses new operations, and forgets none"),
        "persistence": (Level.FINE, "appendonly with appendfsync always: what was acknowledged outlives a crash"),
        "replication": (Level.FINE, "no replicas"),
        "clock": (Level.FINE, "within 1 s of this machine's"),
    } == found()


@pytest.mark.parametrize(
    ("info", "config", "durability", "what", "level", "text"),
    [
        ({"redis_version": "6.0.20"}, {}, AS_CONFIGURED, "version", Level.ERROR, "use Redis 6.2 or newer, or Valkey"),
        ({"redis_version": "6.2.0"}, {}, AS_CONFIGURED, "version", Level.FINE, "Redis 6.2.0"),
        ({"valkey_version": "8.0.1"}, {}, AS_CONFIGURED, "version", Level.FINE, "Valkey 8.0.1"),
        ({"redis_version": None}, {}, AS_CONFIGURED, "version", Level.UNVERIFIED, "Redis 6.2 or newer"),
        (
            {"maxmemory_policy": "allkeys-lru"},
            {},
            AS_CONFIGURED,
            "maxmemory-policy",
            Level.ERROR,
            "set maxmemory-policy to noeviction",
        ),
        ({"maxmemory_policy": "volatile-ttl"}, {}, AS_CONFIGURED, "maxmemory-policy", Level.ERROR, "accept_risk: [eviction]"),
        ({"maxmemory_policy": None}, {}, AS_CONFIGURED, "maxmemory-policy", Level.UNVERIFIED, "see that it is noeviction"),
        (
            {"maxmemory_policy": None},
            {"maxmemory-policy": "allkeys-random"},
            AS_CONFIGURED,
            "maxmemory-policy",
            Level.ERROR,
            "allkeys-random",
        ),
        ({}, {"appendfsync": "everysec"}, AS_CONFIGURED, "persistence", Level.WARNING, "set appendfsync to always"),
        ({}, {"appendfsync": "everysec"}, ON_DISK, "persistence", Level.FINE, "durability.aof"),
        ({}, {"appendfsync": None}, AS_CONFIGURED, "persistence", Level.UNVERIFIED, "appendfsync is hidden"),
        ({"aof_enabled": "0"}, {}, AS_CONFIGURED, "persistence", Level.WARNING, "since the last snapshot; turn appendonly on"),
        ({"aof_enabled": "0"}, {"save": None}, AS_CONFIGURED, "persistence", Level.WARNING, "turn appendonly on"),
        (
            {"aof_enabled": "0"},
            {"save": ""},
            AS_CONFIGURED,
            "persistence",
            Level.WARNING,
            "a restart of the server forgets every",
        ),
        ({"aof_enabled": "0"}, {}, ON_DISK, "persistence", Level.ERROR, "nothing is granted; turn appendonly on"),
        ({"aof_enabled": None}, {}, AS_CONFIGURED, "persistence", Level.UNVERIFIED, "a restart forgets every operation"),
        ({"aof_last_write_status": "err"}, {}, AS_CONFIGURED, "append-only file", Level.WARNING, "free space on its disk"),
        ({"role": "slave"}, {}, AS_CONFIGURED, "replication", Level.ERROR, "let store.url name the primary"),
        ({"role": None}, {}, AS_CONFIGURED, "replication", Level.UNVERIFIED, "does not tell its role"),
        ({}, {}, REPLICATED, "replication", Level.WARNING, "0 of the 1 replicas"),
        (LOADS, {}, REPLICATED, "replication", Level.WARNING, "0 of the 1 replicas"),
        (ONE, {}, REPLICATED, "replication", Level.FINE, "a write counts on the replica"),
        (TWO, {}, REPLICATED, "replication", Level.WARNING, "set durability.replicas to 2"),
        (TWO, {}, AS_CONFIGURED, "replication", Level.WARNING, "set `durability: {replicas: 2}`"),
        (ONE, {}, AS_CONFIGURED, "replication", Level.WARNING, "set `durability: {replicas: 1}`"),
        (ONE, {"min-replicas-to-write": "1"}, AS_CONFIGURED, "replication", Level.WARNING, "bounds what a failover may forget"),
    ],
)
def test_what_a_server_tells(
    info: Mapping[str, str | None],
    config: Mapping[str, str | None],
    durability: Durability,
    what: str,
    level: Level,
    text: str,
) -> None:
    """Each way in which records may be lost is found at its level, with what to do; what is hidden is not verified."""
    told = found(info, config, durability)[what]

    assert (level, True) == (told[0], text in told[1])


@pytest.mark.parametrize(
    ("ahead", "told"),
    [
        (1.0, (Level.FINE, "within 1 s of this machine's")),
        (3.25, (Level.WARNING, "ahead of this machine's")),
        (-3.25, (Level.WARNING, "behind this machine's")),
        (None, (Level.UNVERIFIED, "the server does not tell its time")),
    ],
)
def test_the_clock(ahead: float | None, told: tuple[Level, str]) -> None:
    """A clock that is off by more than a second is a warning, either way."""
    level, text = found(ahead=ahead)["clock"]

    assert (told[0], True) == (level, text.startswith(told[1]))


def test_a_server_that_cannot_confirm() -> None:
    """To ask for confirmations of the disk from a server that has no such command is an error; one that hides it is asked."""
    lacks = [found(durability=ON_DISK, has_waitaof=has).get("durability", (None, ""))[0] for has in (False, None, True)]

    assert [Level.ERROR, None, None] == lacks


def test_info_is_read_by_its_fields() -> None:
    """Comments and section heads are no fields, and values keep their colons."""
    assert {"redis_version": "7.0.15", "executable": "/bin/a:b", "slave0": "ip=::1,port=1"} == read_info(
        "# Server\r\nredis_version:7.0.15\r\nexecutable:/bin/a:b\r\n\r\n# Replication\r\nslave0:ip=::1,port=1\r\n"
    )


# What becomes of findings.

EVICTION: Final = Finding(Level.ERROR, "maxmemory-policy", "allkeys-lru", risk="eviction")
REPLICA: Final = Finding(Level.ERROR, "replication", "a replica")
FINE: Final = Finding(Level.FINE, "maxmemory-policy", "noeviction")
CLOCK: Final = Finding(Level.FINE, "clock", "right")


def test_only_the_error_whose_risk_is_named_is_accepted() -> None:
    """What the configuration accepts is told as accepted; every other error stays one."""
    assert [Level.ERROR] * 2 == [finding.level for finding in judged([EVICTION, REPLICA], ())]
    assert [Level.ACCEPTED, Level.ERROR] == [finding.level for finding in judged([EVICTION, REPLICA], {"eviction"})]


def test_what_differs_between_servers_says_where() -> None:
    """Of several servers, what is the same everywhere is said once, and the rest with the addresses of those it is true of."""
    told = merged({"a:1": [FINE, CLOCK], "b:1": [EVICTION, CLOCK], "c:1": [EVICTION, CLOCK]})

    assert [
        ("maxmemory-policy", "a:1: noeviction", None),
        ("maxmemory-policy", "b:1, c:1: allkeys-lru", "eviction"),
        ("clock", "right", None),
    ] == [(finding.what, finding.text, finding.risk) for finding in told]


def test_another_figure_is_no_other_finding() -> None:
    """A detail that moves at each look does not make news; another text does."""
    first, second = (Finding(Level.WARNING, "clock", "ahead", detail=detail) for detail in ("3.1 s", "3.2 s"))

    assert first == second
    assert "ahead (now: 3.1 s)" == str(first)
