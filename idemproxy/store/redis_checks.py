"""What is asked of a Redis server that keeps records, told as findings: pure functions of what the server replies.

Everything that INFO tells is taken from there, since providers often hide CONFIG. Sources: redis.io, "Key eviction",
"Redis persistence", "WAIT", "WAITAOF".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from idemproxy.store.base_finding import Finding, Level
from idemproxy.store.redis_durability import Durability

OLDEST: Final = (6, 2)
"""The scripts use what came with this version."""

MOST_SKEW: Final = 1.0
"""Seconds by which the server's clock may differ from this machine's without a word."""

CONFIG_READ: Final = ("appendfsync", "save", "min-replicas-to-write")
"""What only CONFIG tells."""

_FIELD = re.compile(r"^([a-z0-9_]+):(.*)$", re.MULTILINE)

Info = Mapping[str, str]


def read_info(text: str) -> Info:
    """The fields of INFO."""
    return {name: value.strip() for name, value in _FIELD.findall(text)}


def look(
    info: Info, config: Mapping[str, str] | None, skew: float, durability: Durability, *, has_waitaof: bool
) -> list[Finding]:
    """All findings on one server.

    `config`: what CONFIG told, None when it is hidden; `skew`: seconds by which its clock is ahead of this machine's.
    """
    return [
        *_server(info, has_waitaof=has_waitaof, durability=durability),
        *_eviction(info),
        *_persistence(info, config, durability),
        *_replication(info, config, durability),
        *_clock(skew),
    ]


def _server(info: Info, durability: Durability, *, has_waitaof: bool) -> Iterator[Finding]:
    name, version = ("Valkey", info.get("valkey_version")) if "valkey_version" in info else ("Redis", info.get("redis_version"))
    if version is None:
        yield Finding(
            Level.UNVERIFIED, "version", "the server does not tell its version: it must be Redis 6.2 or newer, or Valkey"
        )
    elif name == "Redis" and _numbers(version) < OLDEST:
        text = f"Redis {version} lacks commands that the scripts need: use Redis 6.2 or newer, or Valkey"
        yield Finding(Level.ERROR, "version", text)
    else:
        yield Finding(Level.FINE, "version", f"{name} {version}")
    if durability.aof and not has_waitaof:
        text = "store.durability.aof needs WAITAOF, which came with Redis 7.2: use a newer server, or ask for replicas only"
        yield Finding(Level.ERROR, "version", text)


def _eviction(info: Info) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy")
    match policy:
        case None:
            text = "the server does not tell its maxmemory-policy: it must be noeviction, or a full memory forgets operations"
            yield Finding(Level.UNVERIFIED, "maxmemory-policy", text)
        case "noeviction":
            yield Finding(Level.FINE, "maxmemory-policy", "noeviction: a full memory refuses new operations, and forgets none")
        case _:
            text = (
                f"{policy}: a full memory may evict the record of a finished operation, and its retry would run it again; "
                "set maxmemory-policy to noeviction, or accept it with `accept_risk: [eviction]`"
            )
            yield Finding(Level.ERROR, "maxmemory-policy", text, risk="eviction")


def _persistence(info: Info, config: Mapping[str, str] | None, durability: Durability) -> Iterator[Finding]:
    logged, fsync = info.get("aof_enabled"), (config or {}).get("appendfsync")
    if logged is None:
        text = "the server does not tell whether it writes to a disk: without, a restart forgets every operation"
        yield Finding(Level.UNVERIFIED, "persistence", text)
    elif logged == "1" and fsync == "always":
        yield Finding(Level.FINE, "persistence", "appendonly with appendfsync always: what was acknowledged outlives a crash")
    elif logged == "1" and durability.aof:
        yield Finding(Level.FINE, "persistence", "appendonly, and a write counts when it is on disk (durability.aof)")
    elif logged == "1" and fsync is None:
        text = "appendonly is on, but appendfsync is hidden: unless it is always, a crash may lose the last second"
        yield Finding(Level.UNVERIFIED, "persistence", text)
    elif logged == "1":
        text = (
            f"appendfsync {fsync}: a crash of the server may lose the last second of writes, and with a completion it forgets an "
            "operation; set appendfsync to always, or `durability: {aof: true}`"
        )
        yield Finding(Level.WARNING, "persistence", text)
    elif config is not None and not config.get("save"):
        text = "nothing is written to a disk: a restart of the server forgets every operation; turn appendonly on"
        yield Finding(Level.WARNING, "persistence", text)
    else:
        text = "snapshots only: a crash forgets every operation since the last one; turn appendonly on"
        yield Finding(Level.WARNING, "persistence", text)


def _replication(info: Info, config: Mapping[str, str] | None, durability: Durability) -> Iterator[Finding]:
    if info.get("role", "master") != "master":
        yield Finding(Level.ERROR, "replication", "the server is a replica: let store.url name the primary")
        return
    replicas = int(info.get("connected_slaves", "0"))
    least = (config or {}).get("min-replicas-to-write", "0")
    if replicas < durability.replicas:
        text = (
            f"{replicas} replicas are connected, and a write counts with {durability.replicas} (durability.replicas): "
            "until they are, every new operation is refused"
        )
        yield Finding(Level.WARNING, "replication", text)
    elif durability.replicas:
        yield Finding(Level.FINE, "replication", f"a write counts on {durability.replicas} of {replicas} replicas")
    elif replicas and least == "0":
        text = (
            f"{replicas} replicas, and a write counts before any has it: a failover may forget finished operations; "
            "set `durability: {replicas: 1}`, and min-replicas-to-write to 1"
        )
        yield Finding(Level.WARNING, "replication", text)
    elif replicas:
        text = f"min-replicas-to-write {least} bounds what a failover may forget; only `durability: {{replicas: 1}}` prevents it"
        yield Finding(Level.WARNING, "replication", text)
    else:
        yield Finding(Level.FINE, "replication", "no replicas")


def _clock(skew: float) -> Iterator[Finding]:
    if abs(skew) <= MOST_SKEW:
        yield Finding(Level.FINE, "clock", f"within {MOST_SKEW:g} s of this machine's")
    else:
        ahead = "ahead of" if skew > 0 else "behind"
        text = (
            f"{abs(skew):.1f} s {ahead} this machine's: all times of records are the server's; after a failover to a server with "
            "another clock, answers expire early or late; synchronise the clocks"
        )
        yield Finding(Level.WARNING, "clock", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
