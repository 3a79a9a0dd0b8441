"""The record: what a store keeps for one operation, and the versioned form of the answer inside it.

Times are whole microseconds since the epoch on the store's clock; durations are whole microseconds.
"""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from idemproxy.core.message import Answer, Fields, indexed

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


MICROSECONDS: Final = 1_000_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Phase(StrEnum):
    """Where an operation stands. Absence of a record is the fifth phase, in which nothing is known and all is free."""

    IN_FLIGHT = "in_flight"
    COMPLETED = "completed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"


class Source(StrEnum):
    """Where the answer of a completed record comes from."""

    ANSWERED = "answered"
    """From the upstream, to the request that was forwarded."""
    RECOVERED = "recovered"
    """From a probe that found the operation done."""
    RESOLVED = "resolved"
    """From an operator."""


class Identity(NamedTuple):
    """What a record is found by. `scope` and `key_hash` are hashes (or `shared`); `upstream` is a configured name.

    A tuple, since the stores look many of them up in dictionaries.
    """

    scope: str
    upstream: str
    key_hash: str

    def __str__(self) -> str:
        """One line without white space, unique for the three parts, since none of them may hold a slash."""
        return f"{self.scope}/{self.upstream}/{self.key_hash}"


@dataclass(frozen=True, slots=True)
class Record:
    """One operation as the store knows it.

    `answer` is a packed answer (see `pack_answer`), None when there is none or its body was not kept; `status` is the
    upstream's status, where one came. `lease_until` counts only in flight; `expires_at` is when a completed record
    loses its answer, `forget_at` when its expired mark goes. A record that is in flight or unknown has neither:
    time alone never frees it.
    """

    phase: Phase
    fingerprint: str
    fence: int
    owner: str
    route: str
    claimed_at: int
    lease_until: int
    settled_at: int | None = None
    expires_at: int | None = None
    forget_at: int | None = None
    status: int | None = None
    source: Source = Source.ANSWERED
    answer: bytes | None = field(default=None, repr=False)


def time_shown(microseconds: int | None) -> str | None:
    """A time of the store's clock in UTC (RFC 3339); None where there is none."""
    if microseconds is None:
        return None
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


class AnswerFormatError(ValueError):
    """A packed answer is of a version, or a shape, that this program does not read."""


# Version 1: the byte 0x01, the status in three digits, the length of the head in four bytes (big endian), the head, the body.
# The head is what goes on the wire between the status and our own fields: reason phrase, CRLF, then the field lines.
# So what is stored is what is written, and a replay parses nothing.
_VERSION: Final = b"\x01"
_HEAD_AT: Final = 8

COMPRESSED: Final = b"\x02"
"""Begins an answer that store.compressed keeps; no version of ours begins so."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A packed answer, opened: the status, the head as wire bytes, and the whole body."""

    status: int
    head: bytes
    body: bytes = field(repr=False)


def head_bytes(reason: bytes, fields: Fields, left_out: frozenset[bytes] = frozenset()) -> bytes:
    """The reason phrase and the field lines as they stand on the wire, each ended by CRLF; `left_out`: names in lower case."""
    return b"%b\r\n%b" % (reason, indexed(fields).lines(left_out))


def pack_answer(answer: Answer) -> bytes:
    """An answer in the form that stores keep."""
    return pack(answer.status, head_bytes(answer.reason, answer.fields), answer.body)


def pack(status: int, head: bytes, body: bytes) -> bytes:
    """The same, of an answer whose head is on the wire already."""
    return b"%b%03d%b%b%b" % (_VERSION, status, len(head).to_bytes(4, "big"), head, body)


def unpack_answer(packed: bytes) -> StoredAnswer:
    """Open what `pack_answer` made. Raises AnswerFormatError."""
    if packed.startswith(COMPRESSED):
        raise AnswerFormatError("a stored answer is compressed: it takes idemproxy[compression] to read it, or it is damaged")
    if not packed.startswith(_VERSION):
        raise AnswerFormatError(f"a stored answer has version {packed[:1]!r}; this program reads version {_VERSION!r}")
    head_end = _HEAD_AT + int.from_bytes(packed[4:_HEAD_AT], "big")
    if len(packed) < head_end or not packed[1:4].isdigit():
        raise AnswerFormatError("a stored answer is cut short")
    return StoredAnswer(status=int(packed[1:4]), head=packed[_HEAD_AT:head_end], body=packed[head_end:])
