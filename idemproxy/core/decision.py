"""The machine: what a covered request may do, given what its claim found.

The rules in prose. A granted claim is the only permission to forward. Everything else that a claim can find is somebody's
operation already, and is answered by what is known of it:

- the same key with another fingerprint is a caller's bug, whatever the phase: nothing of the first request is given away;
- an operation in flight is waited for as long as the caller has patience, and then refused as in progress;
- a completed one is replayed, or, where its body was not kept, said to have happened;
- an expired one is said to have happened, unless the route renews such keys;
- an unknown one is what nobody here can decide: it is held, unless the route's upstream is itself idempotent (`retry`) or can be
  asked (`probe`). A probe is the one thing that may be sent without a grant, for it reads: what it finds done is completed, what
  it finds surely absent is reclaimed, and all else is held.

Time decides nothing here: a lease that has ended arrives as `unknown` from the store.
The table below is complete: `decide` is a lookup, and a pair that it does not name is an error at import.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from idemproxy.core.policy import OnExpired, OnUnknown, Policy
from idemproxy.core.problem import Slug
from idemproxy.core.record import Phase, Record
from idemproxy.core.transition import Found, Granted

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


class Situation(StrEnum):
    """What the claim found, together with the choice of the route, or the caller's patience, where these matter."""

    GRANTED = "granted"
    IN_FLIGHT_PATIENT = "in_flight, time left to wait"
    IN_FLIGHT_IMPATIENT = "in_flight, no time left to wait"
    COMPLETED = "completed"
    COMPLETED_BARE = "completed, body not kept"
    EXPIRED_REFUSE = "expired, refuse"
    EXPIRED_RENEW = "expired, renew"
    UNKNOWN_HOLD = "unknown, hold"
    UNKNOWN_RETRY = "unknown, retry"
    UNKNOWN_PROBE = "unknown, probe"
    UNKNOWN_PROBED = "unknown, probed in vain while this request waited"


class Match(StrEnum):
    """Whether the request asks for what the record's first request asked for."""

    SAME = "same fingerprint"
    OTHER = "other fingerprint"


class Verb(StrEnum):
    """What the journey does next."""

    FORWARD = "forward"
    WAIT = "wait"
    REPLAY = "replay"
    RECLAIM = "reclaim"
    """Claim again, naming the fence that was found: of several callers one gets it."""
    PROBE = "probe"
    """Ask the upstream whether it happened: of several callers one does, and what it learns serves all."""
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Rule:
    """A cell of the table: what to do, and for a refusal why."""

    verb: Verb
    slug: Slug | None = None


_REUSED: Final = Rule(Verb.REFUSE, Slug.KEY_REUSED)

TABLE: Final = MappingProxyType(
    {
        (Situation.GRANTED, Match.SAME): Rule(Verb.FORWARD),
        (Situation.IN_FLIGHT_PATIENT, Match.SAME): Rule(Verb.WAIT),
        (Situation.IN_FLIGHT_PATIENT, Match.OTHER): _REUSED,
        (Situation.IN_FLIGHT_IMPATIENT, Match.SAME): Rule(Verb.REFUSE, Slug.IN_PROGRESS),
        (Situation.IN_FLIGHT_IMPATIENT, Match.OTHER): _REUSED,
        (Situation.COMPLETED, Match.SAME): Rule(Verb.REPLAY),
        (Situation.COMPLETED, Match.OTHER): _REUSED,
        (Situation.COMPLETED_BARE, Match.SAME): Rule(Verb.REFUSE, Slug.RESPONSE_UNAVAILABLE),
        (Situation.COMPLETED_BARE, Match.OTHER): _REUSED,
        (Situation.EXPIRED_REFUSE, Match.SAME): Rule(Verb.REFUSE, Slug.KEY_EXPIRED),
        (Situation.EXPIRED_REFUSE, Match.OTHER): _REUSED,
        (Situation.EXPIRED_RENEW, Match.SAME): Rule(Verb.RECLAIM),
        (Situation.EXPIRED_RENEW, Match.OTHER): _REUSED,
        (Situation.UNKNOWN_HOLD, Match.SAME): Rule(Verb.REFUSE, Slug.OUTCOME_UNKNOWN),
        (Situation.UNKNOWN_HOLD, Match.OTHER): _REUSED,
        (Situation.UNKNOWN_RETRY, Match.SAME): Rule(Verb.RECLAIM),
        (Situation.UNKNOWN_RETRY, Match.OTHER): _REUSED,
        (Situation.UNKNOWN_PROBE, Match.SAME): Rule(Verb.PROBE),
        (Situation.UNKNOWN_PROBE, Match.OTHER): _REUSED,
        (Situation.UNKNOWN_PROBED, Match.SAME): Rule(Verb.REFUSE, Slug.OUTCOME_UNKNOWN),
        (Situation.UNKNOWN_PROBED, Match.OTHER): _REUSED,
    }
)
"""Every pair that can occur. A grant was made for this very request, so it has no other fingerprint."""

if _missing := {*product(Situation, Match)} - {(Situation.GRANTED, Match.OTHER)} - TABLE.keys():
    raise AssertionError(f"the table of the machine has no rule for {_missing}")

_GRANTED: Final = TABLE[Situation.GRANTED, Match.SAME]
_UNKNOWN: Final = MappingProxyType(
    {
        OnUnknown.HOLD: Situation.UNKNOWN_HOLD,
        OnUnknown.RETRY: Situation.UNKNOWN_RETRY,
        OnUnknown.PROBE: Situation.UNKNOWN_PROBE,
    }
)


def situation(record: Record, policy: Policy, *, patient: bool, waited: bool = False) -> Situation:
    """Name what was found."""
    match record.phase:
        case Phase.IN_FLIGHT:
            return Situation.IN_FLIGHT_PATIENT if patient else Situation.IN_FLIGHT_IMPATIENT
        case Phase.COMPLETED:
            return Situation.COMPLETED_BARE if record.answer is None else Situation.COMPLETED
        case Phase.EXPIRED:
            return Situation.EXPIRED_RENEW if policy.on_expired is OnExpired.RENEW else Situation.EXPIRED_REFUSE
        case Phase.UNKNOWN:
            chosen = _UNKNOWN[policy.on_unknown]
            return Situation.UNKNOWN_PROBED if chosen is Situation.UNKNOWN_PROBE and waited and _was_probed(record) else chosen


def _was_probed(record: Record) -> bool:
    """Whether the last claim of an unknown record was a probe's: that one keeps the time since when the outcome is unknown."""
    return record.settled_at is not None and record.settled_at < record.claimed_at


def decide(claimed: Granted | Found, fingerprint: str, policy: Policy, *, patient: bool, waited: bool = False) -> Rule:
    """What to do with the result of a claim.

    `patient` says whether the caller has time left to wait, `waited` whether it has waited already: of those who waited for a
    probe that learned nothing, none asks again.
    """
    if isinstance(claimed, Granted):
        return _GRANTED
    record = claimed.record
    match = Match.SAME if record.fingerprint == fingerprint else Match.OTHER
    return TABLE[situation(record, policy, patient=patient, waited=waited), match]
