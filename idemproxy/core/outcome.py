"""The judgement: what one attempt proved, and what must be written about it.

What counts is what left and what came back, not which exception was raised: nothing written means `never_sent`, a whole
answer means `answered`, and everything between is `unknown`.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from idemproxy.core.policy import OutcomeRule

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from idemproxy.core.value import dataclass


@dataclass(frozen=True, slots=True)
class NeverSent:
    """No byte of the request was written. `error` is an RFC 9209 error type, `status` what the caller gets."""

    reason: str
    error: str = "destination_unavailable"
    status: int = 502


@dataclass(frozen=True, slots=True)
class Unsure:
    """Something was written and no whole answer came back: the attempt result `unknown`."""

    reason: str
    error: str = "connection_terminated"
    status: int = 502


@dataclass(frozen=True, slots=True)
class Answered:
    """The upstream's whole answer has arrived."""

    status: int
    has_retry_after: bool


AttemptResult: TypeAlias = NeverSent | Answered | Unsure


class Settlement(StrEnum):
    """What the holder of the claim does with the record."""

    COMPLETE = "complete"
    RELEASE = "release"
    MARK_UNKNOWN = "mark_unknown"


_BY_STATUS: Final = MappingProxyType(
    {
        # The upstream refused before it acted.
        **dict.fromkeys((401, 403, 407, 408, 409, 421, 425, 429), Settlement.RELEASE),
        # Not implemented, and version not supported: the server says that it cannot act, for this request now and ever.
        501: Settlement.COMPLETE,
        505: Settlement.COMPLETE,
    }
)


def judge_status(status: int, rule: OutcomeRule, *, has_retry_after: bool) -> Settlement:
    """What a whole answer with this status says of the operation, by the route's lists and then the contract's table."""
    if status in rule.release:
        return Settlement.RELEASE
    if status in rule.unknown:
        return Settlement.MARK_UNKNOWN
    if status in rule.complete:
        return Settlement.COMPLETE
    if status == 503 and has_retry_after:
        return Settlement.RELEASE
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    # A 101 is the only 1xx that ends an exchange; nobody asked for it, and it says nothing of the operation.
    return Settlement.COMPLETE if 200 <= status < 500 else Settlement.MARK_UNKNOWN


def judge(result: AttemptResult, rule: OutcomeRule) -> Settlement:
    """What must be written about an attempt before anyone is answered."""
    match result:
        case Answered():
            return judge_status(result.status, rule, has_retry_after=result.has_retry_after)
        case NeverSent():
            return Settlement.RELEASE
        case Unsure():
            return Settlement.MARK_UNKNOWN
