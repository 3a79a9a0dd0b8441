"""How the server is told of holds and completions, and how it tells records and acts (lua/prelude.lua)."""

from __future__ import annotations

import json
from typing import Final, TypeAlias, cast
from zlib import crc32

from idemproxy.core.record import Identity, Phase, Record, Source
from idemproxy.core.transition import Act, Completion, Hold, Verb
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_script import Part

_PHASES: Final = {phase.value.encode(): phase for phase in Phase}
_SOURCES: Final = {source.value.encode(): source for source in Source} | {b"": Source.ANSWERED}

BUCKETS: Final = 256
"""Into so many parts the records are spread: enough that each node of a cluster has its share of them."""

Told: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes | None]
"""A record as the scripts tell it: `told` in lua/prelude.lua."""


class Keys:
    """The keys under a prefix: for one record there are three, in one slot by their hash tag, which is that of their bucket."""

    __slots__ = ("_begins", "_buckets")

    def __init__(self, prefix: str) -> None:
        self._begins = f"{prefix}{{"
        self._buckets = tuple(f"{self._begins}{bucket:02x}}}" for bucket in range(BUCKETS))

    def bucket(self, identity: Identity) -> int:
        """The bucket of a record, spread by its key alone."""
        return self.place(identity)[0]

    def of(self, identity: Identity) -> tuple[bytes, bytes]:
        """The record itself, and its answer."""
        _, record, answer = self.place(identity)
        return record, answer

    def place(self, identity: Identity) -> tuple[int, bytes, bytes]:
        """The bucket, the record itself, and its answer."""
        bucket = crc32(identity.key_hash.encode()) % BUCKETS
        record = f"{self._buckets[bucket]}{identity.scope}/{identity.upstream}/{identity.key_hash}".encode()
        return bucket, record, record + b":answer"

    def audit(self, identity: Identity) -> bytes:
        """Its audit trail."""
        return f"{self._buckets[self.bucket(identity)]}{identity}:audit".encode()

    def witness(self, bucket: int) -> bytes:
        """The witness of a bucket (redis_witness)."""
        return f"{self._buckets[bucket]}witness".encode()

    def check(self, bucket: int) -> bytes:
        """What `check` writes in a bucket."""
        return f"{self._buckets[bucket]}check".encode()

    def pattern(self) -> bytes:
        """What fits all records, and their answers and trails, in the server's own form of patterns."""
        begins = "".join(f"\\{each}" if each in "*?[]^-\\" else each for each in self._begins)
        return f"{begins}??}}*/*/*".encode()

    def identity(self, record: bytes) -> Identity | None:
        """Whose record a key is; None for a key that is none."""
        parts = record.decode(errors="replace").removeprefix(self._begins).partition("}")[2].split("/")
        return Identity(*parts) if len(parts) == 3 and ":" not in parts[2] else None


def holding(hold: Hold) -> tuple[Part, ...]:
    """A hold as arguments."""
    return hold.fence, hold.owner, hold.fingerprint, hold.route, hold.claimed_at


def fulfilling(completion: Completion) -> tuple[Part, ...]:
    """A completion as arguments."""
    source = b"" if completion.source is Source.ANSWERED else completion.source.value
    return completion.status, completion.retention, completion.expired_mark, source, *kept(completion.answer)


def kept(answer: bytes | None) -> tuple[bytes, bytes]:
    """An answer as arguments: whether there is one, and it."""
    return (b"", b"") if answer is None else (b"1", answer)


def number(value: int | None) -> Part:
    """A number as an argument, or none."""
    return b"" if value is None else value


def record(told: Reply) -> Record:
    """A record as the scripts tell it: `told` in lua/prelude.lua, in the order of its fields."""
    (phase, fingerprint, fence, owner, route, claimed_at, lease_until,
     settled_at, expires_at, forget_at, status, source, answer) = cast("Told", told)  # fmt: skip
    return Record(
        _PHASES[phase],
        fingerprint.decode(),
        int(fence),
        owner.decode(),
        route.decode(),
        int(claimed_at),
        int(lease_until),
        int(settled_at) if settled_at else None,
        int(expires_at) if expires_at else None,
        int(forget_at) if forget_at else None,
        int(status) if status else None,
        _SOURCES[source],
        answer,
    )


def act(entry: bytes) -> Act:
    """An act from its entry in the audit trail."""
    fields = json.loads(entry)
    return Act(
        verb=Verb(fields["verb"]),
        who=fields["who"],
        why=fields["why"],
        fence=int(fields["fence"]),
        from_phase=Phase(fields["from_phase"]),
        at=int(fields["at"]),
    )
