"""The atomic steps of a record, as pure functions: (record or None, what is asked, now) -> (record or None, result).

A store promises that each step happens at once, on its own clock, and is durable when it returns. The memory and SQLite
stores run these functions inside their transactions; the Redis store runs the same steps as Lua scripts, and one
contract suite holds all of them to the same behaviour.

The rules, each with the failure that it prevents:

- Every later write carries the hold: the fence and the owner's nonce. Another fence changes nothing. Without it a holder
  that wakes late replaces an answer that was already given.
- A fence is the store's time in microseconds, and always above the record's last one. It is never given again: after
  a release, a forget or a loss the clock has moved on, and the nonce tells two fences apart even if the clock was set back.
- A lease that is over makes `unknown`, never absent: the holder may have sent its request.
- A record that the store has lost is written anew by its holder: the effect is a fact, whoever forgot it.
- A claim asked again by the same owner is the same claim: that is how a lost reply is read back.
- Only completed records expire, and only expired ones go.
- A person's act names the fence that they saw: what has moved on since is not touched.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from idemproxy.core.record import Phase, Record, Source

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """A wish to forward. `owner` is a nonce drawn for this claim alone; `lease` is in microseconds.

    `reclaim` names the fence of an unknown or expired record that the caller's policy allows to be run again.
    """

    fingerprint: str
    owner: str
    route: str
    lease: int
    reclaim: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A granted claim: what every later write about it must carry."""

    fence: int
    owner: str
    fingerprint: str
    route: str
    claimed_at: int


@dataclass(frozen=True, slots=True)
class Granted:
    """The asker, and no one else, may forward."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Found:
    """The operation is known already; the record says how far it came."""

    record: Record


@dataclass(frozen=True, slots=True)
class Completion:
    """What completes a record. Durations in microseconds; `answer` None keeps the fact without the answer."""

    status: int
    retention: int
    expired_mark: int
    source: Source = Source.ANSWERED
    answer: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is known of an operation whose outcome is not: the upstream's error answer, where one came.

    `since`, on the store's clock, keeps the time at which the outcome became unknown, where a probe found that it still is.
    """

    status: int | None = None
    since: int | None = None
    answer: bytes | None = field(default=None, repr=False)
    back_to: tuple[int, str] | None = None
    """Fence and owner of the hold before: what was claimed only to ask, or without effect, is that holder's to settle again."""


@dataclass(frozen=True, slots=True)
class Release:
    """It is proven that nothing was executed: the key is free."""


Ending: TypeAlias = Completion | Doubt | Release
"""What a holder writes last."""


class Settled(StrEnum):
    """What became of a holder's write."""

    WRITTEN = "written"
    REWRITTEN = "rewritten"
    """The store had lost the record; it was written anew."""
    STALE = "stale"
    """Another fence holds the record, or it is settled otherwise; nothing changed."""


class Verb(StrEnum):
    """What a person may do to a record."""

    RESOLVE_COMPLETED = "resolve_completed"
    RESOLVE_NOT_EXECUTED = "resolve_not_executed"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Act:
    """A person's act, for the audit trail: who did what, why, from which phase, and when (the store's clock, microseconds)."""

    verb: Verb
    who: str
    why: str
    fence: int
    from_phase: Phase
    at: int


class Acted(StrEnum):
    """What became of a person's act."""

    DONE = "done"
    ABSENT = "absent"
    """There is no such record."""
    STALE = "stale"
    """The record has another fence than the one that the person saw; nothing changed."""
    WRONG_PHASE = "wrong_phase"
    """The record is in a phase in which this act would be wrong; nothing changed."""


def aged(record: Record | None, now: int) -> Record | None:
    """The record as time alone leaves it: in_flight -> unknown, completed -> expired, expired -> absent."""
    match record:
        case Record(phase=Phase.IN_FLIGHT) if record.lease_until <= now:
            return replace(record, phase=Phase.UNKNOWN, settled_at=record.lease_until)
        case Record(phase=Phase.COMPLETED | Phase.EXPIRED, forget_at=int(forget_at)) if forget_at <= now:
            return None
        case Record(phase=Phase.COMPLETED, expires_at=int(expires_at)) if expires_at <= now:
            return replace(record, phase=Phase.EXPIRED, answer=None)
        case _:
            return record


def claim(record: Record | None, ask: Ask, now: int) -> tuple[Record | None, Granted | Found]:
    """Read or take: grant when the record is absent, already the asker's, or open to `reclaim`."""
    current = aged(record, now)
    if current is not None:
        if current.phase is Phase.IN_FLIGHT and current.owner == ask.owner:
            # The asker counts its lease from this asking, which may be later than that of a copy that was carried out late.
            current = replace(current, lease_until=max(current.lease_until, now + ask.lease))
            return current, Granted(hold_of(current))
        again = (
            ask.reclaim == current.fence
            and current.phase in (Phase.UNKNOWN, Phase.EXPIRED)
            and current.fingerprint == ask.fingerprint
        )
        if not again:
            return current, Found(current)
    taken = Record(
        phase=Phase.IN_FLIGHT,
        fingerprint=ask.fingerprint,
        fence=now if current is None else max(now, current.fence + 1),
        owner=ask.owner,
        route=ask.route,
        claimed_at=now,
        lease_until=now + ask.lease,
    )
    return taken, Granted(hold_of(taken))


def renew(record: Record | None, hold: Hold, lease: int, now: int) -> tuple[Record | None, bool]:
    """Prolong the lease of a record in flight; False when the hold is no longer in flight.

    A lease that is over stays over: someone may have seen the record as unknown, and have decided by that.
    """
    current = aged(record, now)
    if record is None or current is None or current.phase is not Phase.IN_FLIGHT or not _holds(record, hold):
        return record, False
    return replace(record, lease_until=now + lease), True


def complete(record: Record | None, hold: Hold, completion: Completion, now: int) -> tuple[Record | None, Settled]:
    """Store what was answered. Also settles an unknown record, and writes a lost one anew."""
    if record is not None and not _holds(record, hold):
        return record, Settled.STALE
    if record is not None and record.phase in (Phase.COMPLETED, Phase.EXPIRED):
        return record, Settled.WRITTEN  # the same completion again, its first reply lost
    completed = _completed(record or _lost(hold), completion, now)
    return completed, Settled.REWRITTEN if record is None else Settled.WRITTEN


def release(record: Record | None, hold: Hold) -> tuple[Record | None, Settled]:
    """Free the key: it is proven that nothing was executed."""
    if record is None:
        return None, Settled.WRITTEN
    if not _holds(record, hold) or record.phase not in (Phase.IN_FLIGHT, Phase.UNKNOWN):
        return record, Settled.STALE
    return None, Settled.WRITTEN


def mark_unknown(record: Record | None, hold: Hold, doubt: Doubt, now: int) -> tuple[Record | None, Settled]:
    """Say that only the upstream knows; keep its answer (an error) when there was one."""
    if record is not None and (not _holds(record, hold) or record.phase not in (Phase.IN_FLIGHT, Phase.UNKNOWN)):
        return record, Settled.STALE
    since = now if doubt.since is None else doubt.since
    fence, owner = doubt.back_to or (hold.fence, hold.owner)
    marked = replace(
        record or _lost(hold),
        phase=Phase.UNKNOWN,
        fence=fence,
        owner=owner,
        settled_at=since,
        status=doubt.status,
        answer=doubt.answer,
    )
    return marked, Settled.REWRITTEN if record is None else Settled.WRITTEN


def resolve(record: Record | None, fence: int, resolution: Completion | None, now: int) -> tuple[Record | None, Acted]:
    """Let a person decide an unknown outcome: completed as they say, or, with None, not executed, which frees the key.

    The completed record gets a fence of its own, so that a holder which comes back is told that it is too late.
    """
    current = aged(record, now)
    match current:
        case None:
            return None, Acted.ABSENT
        case Record() if current.fence != fence:
            return current, Acted.STALE
        case Record(phase=Phase.UNKNOWN) if resolution is None:
            return None, Acted.DONE
        case Record(phase=Phase.UNKNOWN) if resolution is not None:
            decided = replace(current, fence=max(now, fence + 1), owner="")
            return _completed(decided, resolution, now), Acted.DONE
        case _:
            return current, Acted.WRONG_PHASE


def forget(record: Record | None, fence: int, now: int) -> tuple[Record | None, Acted]:
    """Let a person remove a record, so that its key is new again: any but one whose holder is presumed alive."""
    current = aged(record, now)
    if current is None:
        return None, Acted.ABSENT
    if current.fence != fence:
        return current, Acted.STALE
    if current.phase is Phase.IN_FLIGHT:
        return current, Acted.WRONG_PHASE
    return None, Acted.DONE


def hold_of(record: Record) -> Hold:
    """The hold under which a record was claimed last, as its owner would carry it."""
    return Hold(record.fence, record.owner, record.fingerprint, record.route, record.claimed_at)


def _completed(record: Record, completion: Completion, now: int) -> Record:
    expires_at = now + completion.retention
    return Record(
        phase=Phase.COMPLETED,
        fingerprint=record.fingerprint,
        fence=record.fence,
        owner=record.owner,
        route=record.route,
        claimed_at=record.claimed_at,
        lease_until=record.lease_until,
        settled_at=now,
        expires_at=expires_at,
        forget_at=expires_at + completion.expired_mark,
        status=completion.status,
        source=completion.source,
        answer=completion.answer,
    )


def _holds(record: Record, hold: Hold) -> bool:
    return record.fence == hold.fence and record.owner == hold.owner


def _lost(hold: Hold) -> Record:
    return Record(
        phase=Phase.IN_FLIGHT,
        fingerprint=hold.fingerprint,
        fence=hold.fence,
        owner=hold.owner,
        route=hold.route,
        claimed_at=hold.claimed_at,
        lease_until=hold.claimed_at,
    )
