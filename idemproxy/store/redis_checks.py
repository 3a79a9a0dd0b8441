"""What is asked of a Redis server that keeps records, and what its replies mean, told as findings.

`look` is a pure function. Everything that INFO tells is taken from there, since providers often hide CONFIG; what they hide is
not verified. Sources: redis.io, "Key eviction", "Redis persistence", "WAIT", "WAITAOF", "INFO".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from idemproxy.store.base_finding import Finding, Level
from idemproxy.store.base_host import host_clock
from idemproxy.store.redis_durability import Durability
from idemproxy.store.redis_fault import RefusedError, is_withheld
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_script import packed

OLDEST: Final = (6, 2)
"""The scripts use what came with this version."""

MOST_SKEW: Final = 1.0
"""Seconds by which the server's clock may differ from this machine's without a word."""

_CONFIG: Final = ("maxmemory-policy", "appendfsync", "save", "min-replicas-to-write")
"""What CONFIG is asked for: each by itself, since Redis before 7 takes one at a time."""

_FIELD: Final = re.compile(r"^([a-z0-9_]+):(.*)$", re.MULTILINE)
_REPLICA: Final = re.compile(r"slave\d+")


class Asks(Protocol):
    """A link to one server."""

    @property
    def address(self) -> str:
        """For messages."""

    @property
    def deadline(self) -> float:
        """Seconds that a command may take."""

    async def told(self, command: bytes, until: float) -> Reply:
        """The reply to a packed command. Raises StoreUnavailableError, of it RefusedError for what the server refuses."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server tells; None, or absent, is what it does not tell us.

    `config`: the settings that CONFIG told; `ahead`: seconds by which its clock is ahead of this machine's, at least.
    """

    info: Mapping[str, str]
    config: Mapping[str, str]
    ahead: float | None
    has_waitaof: bool | None


async def see(link: Asks) -> Seen:
    """Ask a server, all at once. Raises StoreUnavailableError."""
    until = asyncio.get_running_loop().time() + link.deadline
    wall = host_clock().wall
    before = wall()
    time, info, waitaof, *config = await asyncio.gather(
        _asked(link, until, b"TIME"),
        _asked(link, until, b"INFO"),
        _asked(link, until, b"COMMAND", b"INFO", b"WAITAOF"),
        *(_asked(link, until, b"CONFIG", b"GET", name.encode()) for name in _CONFIG),
    )
    after = wall()
    return Seen(
        info=read_info(info.decode(errors="replace")) if isinstance(info, bytes) else {},
        config={name: value for name, reply in zip(_CONFIG, config, strict=True) if (value := _value(reply)) is not None},
        ahead=_ahead(time, before, after),
        has_waitaof=None if not isinstance(waitaof, list) or not waitaof else waitaof[0] is not None,
    )


async def _asked(link: Asks, until: float, *command: bytes) -> Reply:
    """The reply to one of the questions, None where the server, or its provider, does not let us ask it."""
    try:
        return await link.told(packed(*command), until)
    except RefusedError as refused:
        if is_withheld(refused.error):
            return None
        raise


def _value(told: Reply) -> str | None:
    """Of a setting, by what CONFIG told."""
    match told:
        case [bytes(), bytes(value)]:
            return value.decode(errors="replace")
        case _:
            return None


def _ahead(told: Reply, before: int, after: int) -> float | None:
    """Seconds, by what TIME told between two moments of this machine; 0 where it may have been the same."""
    match told:
        case [bytes(seconds), bytes(rest)]:
            there = int(seconds) * 1_000_000 + int(rest)
            return (max(there - after, 0) or min(there - before, 0)) / 1_000_000
        case _:
            return None


def read_info(text: str) -> Mapping[str, str]:
    """The fields of INFO."""
    return {name: value.strip() for name, value in _FIELD.findall(text)}


def look(seen: Seen, durability: Durability) -> list[Finding]:
    """All findings on one server."""
    return [
        *_version(seen, durability),
        *_eviction(seen),
        *_persistence(seen, durability),
        *_replication(seen, durability),
        *_clock(seen),
    ]


def _version(seen: Seen, durability: Durability) -> Iterator[Finding]:
    valkey, redis = seen.info.get("valkey_version"), seen.info.get("redis_version")
    if valkey is None and redis is None:
        text = "the server does not tell its version: see that it is Redis 6.2 or newer, or Valkey"
        yield Finding(Level.UNVERIFIED, "version", text)
    elif valkey is None and redis is not None and _numbers(redis) < OLDEST:
        text = f"Redis {redis} lacks commands that the scripts need: use Redis 6.2 or newer, or Valkey"
        yield Finding(Level.ERROR, "version", text)
    else:
        yield Finding(Level.FINE, "version", f"Redis {redis}" if valkey is None else f"Valkey {valkey}")
    if durability.aof and seen.has_waitaof is False:
        text = "store.durability.aof needs WAITAOF, which came with Redis 7.2: use a newer server, or ask for replicas only"
        yield Finding(Level.ERROR, "durability", text)


def _eviction(seen: Seen) -> Iterator[Finding]:
    match seen.info.get("maxmemory_policy") or seen.config.get("maxmemory-policy"):
        case None:
            text = (
                "the server does not tell its maxmemory-policy: see that it is noeviction, or a full memory forgets operations, "
                "which then run again"
            )
            yield Finding(Level.UNVERIFIED, "maxmemory-policy", text)
        case "noeviction":
            yield Finding(Level.FINE, "maxmemory-policy", "noeviction: a full memory refuses new operations, and forgets none")
        case policy:
            text = (
                f"{policy}: a full memory may evict the record of a finished operation, and its retry would run it again; "
                "set maxmemory-policy to noeviction, or accept it with `store.accept_risk: [eviction]`"
            )
            yield Finding(Level.ERROR, "maxmemory-policy", text, risk="eviction")


def _persistence(seen: Seen, durability: Durability) -> Iterator[Finding]:
    what, fsync, save = "persistence", seen.config.get("appendfsync"), seen.config.get("save")
    match seen.info.get("aof_enabled"):
        case None:
            text = "the server does not tell whether it writes to a disk: without, a restart forgets every operation"
            yield Finding(Level.UNVERIFIED, what, text)
        case "1" if fsync == "always":
            yield Finding(Level.FINE, what, "appendonly with appendfsync always: what was acknowledged outlives a crash")
        case "1" if durability.aof:
            yield Finding(Level.FINE, what, "appendonly, and a write counts when it is on disk (durability.aof)")
        case "1" if fsync is None:
            text = "appendonly is on, and appendfsync is hidden: unless it is always, a crash may lose the last second of writes"
            yield Finding(Level.UNVERIFIED, what, text)
        case "1":
            text = (
                f"appendfsync {fsync}: a crash of the server may lose the last second of writes or more, and with a completion "
                "it forgets an operation; set appendfsync to always, or `durability: {aof: true}`"
            )
            yield Finding(Level.WARNING, what, text)
        case _ if durability.aof:
            text = "appendonly is off, and durability.aof asks that writes are on disk: nothing is granted; turn appendonly on"
            yield Finding(Level.ERROR, what, text)
        case _ if save == "":
            text = "nothing is written to a disk: a restart of the server forgets every operation; turn appendonly on"
            yield Finding(Level.WARNING, what, text)
        case _:
            text = "appendonly is off: a crash forgets every operation since the last snapshot; turn appendonly on"
            yield Finding(Level.WARNING, what, text)
    if seen.info.get("aof_last_write_status", "ok") != "ok":
        text = "the last write to the append-only file failed: see the server's log, and free space on its disk"
        yield Finding(Level.WARNING, "append-only file", text)


def _replication(seen: Seen, durability: Durability) -> Iterator[Finding]:
    what, role = "replication", seen.info.get("role")
    online = sum(bool(_REPLICA.fullmatch(name)) and "state=online" in value for name, value in seen.info.items())
    least = seen.config.get("min-replicas-to-write", "0")
    if role is None:
        text = "the server does not tell its role and its replicas: a failover to one that lacks a write forgets an operation"
        yield Finding(Level.UNVERIFIED, what, text)
    elif role != "master":
        yield Finding(Level.ERROR, what, "the server is a replica: let store.url name the primary", heals=True)
    elif online < durability.replicas:
        text = (
            f"{online} of the {durability.replicas} replicas that durability.replicas asks for are online: "
            "until they are, nothing new is sent"
        )
        yield Finding(Level.WARNING, what, text)
    elif 0 < durability.replicas < online:
        text = (
            f"a write counts on {durability.replicas} of {_replicas(online)}: one that has not heard of a failover may confirm "
            f"what the old primary still takes; set durability.replicas to {online}"
        )
        yield Finding(Level.WARNING, what, text)
    elif durability.replicas:
        yield Finding(
            Level.FINE, what, f"a write counts on all {_replicas(online)}" if online > 1 else "a write counts on the replica"
        )
    elif online and least == "0":
        text = (
            f"{_replicas(online)}, and a write counts before any has it: a failover may forget finished operations; "
            f"set `durability: {{replicas: {online}}}`, and min-replicas-to-write to 1"
        )
        yield Finding(Level.WARNING, what, text)
    elif online:
        text = (
            f"min-replicas-to-write {least} bounds what a failover may forget; only `durability: {{replicas: {online}}}` "
            "prevents it"
        )
        yield Finding(Level.WARNING, what, text)
    else:
        yield Finding(Level.FINE, what, "no replicas")


def _clock(seen: Seen) -> Iterator[Finding]:
    if seen.ahead is None:
        text = "the server does not tell its time: see that its clock, and that of each replica, is right"
        yield Finding(Level.UNVERIFIED, "clock", text)
    elif abs(seen.ahead) <= MOST_SKEW:
        yield Finding(Level.FINE, "clock", f"within {MOST_SKEW:g} s of this machine's")
    else:
        side = "ahead of" if seen.ahead > 0 else "behind"
        text = (
            f"{side} this machine's: leases and expiries go by the server's, and a failover to a server with another clock may "
            "end them early or late; keep the clocks of all servers right by slewing"
        )
        yield Finding(Level.WARNING, "clock", text, detail=f"{abs(seen.ahead):.1f} s")


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
