"""The replies of the journey: what each thing that it can find, or prove, says to the client."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from idemproxy.core.decision import Rule, Verb
from idemproxy.core.outcome import Answered, NeverSent, Settlement, Unsure
from idemproxy.core.problem import Slug, problem
from idemproxy.core.record import MICROSECONDS, AnswerFormatError, Phase, Record, Source, unpack_answer
from idemproxy.core.replay import decoded_body, decoded_head, decoded_length, passed_on, status_lines, surplus_codings
from idemproxy.observe.observation import Outcome, Result
from idemproxy.proxy.reply import Reply, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from dataclasses import dataclass

    from idemproxy.core.message import Answer, Fields
    from idemproxy.core.outcome import AttemptResult
    from idemproxy.core.problem import Problem
    from idemproxy.proxy.answer_reader import AnswerHead
    from idemproxy.proxy.reply import Forwarded, Relay
    from idemproxy.proxy.upstream import Attempted
else:
    from idemproxy.core.value import dataclass

_log = logging.getLogger(__name__)

_REFUSALS: Final = MappingProxyType(
    {
        Slug.KEY_REUSED: Outcome.REFUSED,
        Slug.IN_PROGRESS: Outcome.IN_PROGRESS,
        Slug.OUTCOME_UNKNOWN: Outcome.UNKNOWN,
        Slug.RESPONSE_UNAVAILABLE: Outcome.REFUSED,
        Slug.KEY_EXPIRED: Outcome.REFUSED,
    }
)
"""What each refusal of the machine is counted as."""

_SENTENCES: Final = MappingProxyType(
    {
        Slug.KEY_REUSED: """
            This key was first used for another request to this upstream:
            send a new key for a new operation, or the first request unchanged to get its answer.""",
        Slug.IN_PROGRESS: """
            The first request with this key is still being carried out:
            retry it unchanged, with the same key, a little later.""",
        Slug.OUTCOME_UNKNOWN: """
            A request with this key reached the upstream and its outcome is not known:
            find out at the upstream whether it happened, and do not send it again under a new key before you know.""",
        Slug.RESPONSE_UNAVAILABLE: """
            The operation was carried out, and the upstream answered with status {status}, but its answer was not kept:
            do not send it again, ask the upstream for what you need.""",
        Slug.KEY_EXPIRED: """
            The operation was carried out at {time}, with status {status}, and its answer is no longer kept:
            look at the upstream before you use a new key.""",
    }
)
"""What each says; the fields in braces come from the record."""

RETRY_AFTER: Final = 1
"""Seconds after which a request that came too early, or met an outage, may try again."""

_OUTCOMES: Final = MappingProxyType(
    {
        Settlement.COMPLETE: Outcome.EXECUTED,
        Settlement.RELEASE: Outcome.REFUSED,
        Settlement.MARK_UNKNOWN: Outcome.UNKNOWN,
    }
)

RESULTS: Final[Mapping[type[AttemptResult], Result]] = MappingProxyType(
    {NeverSent: Result.NEVER_SENT, Answered: Result.ANSWERED, Unsure: Result.UNKNOWN}
)
"""The name under which each result of an attempt is counted."""


@dataclass(frozen=True, slots=True)
class Particulars:
    """What a reply tells of its operation beside the answer; `expires_at` in microseconds, counted where it is completed."""

    key_hash: str
    fence: int
    expires_at: int
    unrecorded: bool = False
    forwarded: Forwarded | None = None


class Decoded:
    """A stored body that is decoded as its client takes it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    async def take(self) -> bytes:
        """The next piece; b"" at the end."""
        return await asyncio.to_thread(next, self._pieces, b"")

    def leave(self) -> None:
        """What was not decoded never will be."""


async def replayed(record: Record, key_hash: str, asked: Fields) -> Reply:
    """The stored answer, byte for byte, with our lines.

    For a client that does not take the coding of its body, as the request's fields, `asked`, tell, it is decoded, in threads.
    """
    try:
        stored = unpack_answer(record.answer or b"")
    except AnswerFormatError as exc:
        _log.error("an answer was not replayed, key %s: %s", key_hash, exc)
        return refused(Rule(Verb.REFUSE, Slug.RESPONSE_UNAVAILABLE), record, key_hash)
    head, length = stored.head, len(stored.body)
    body: bytes | Decoded = stored.body
    surplus = surplus_codings(stored, asked)
    if surplus and (found := await asyncio.to_thread(decoded_length, stored, surplus)) is not None:
        head, body, length = decoded_head(stored, surplus), Decoded(decoded_body(stored, surplus)), found
    outcome = Outcome.RECOVERED if record.source is Source.RECOVERED else Outcome.REPLAYED
    lines = status_lines(outcome, key_hash=key_hash, fence=record.fence, expires_at=record.expires_at, replayed=True)
    return Reply(stored.status, head + lines, outcome, body, length, fence=record.fence)


def recovered(answer: Answer, head: bytes, operation: Particulars) -> Reply:
    """What a probe found, to the one who asked; `head` is the answer's, as it is passed on (core.replay)."""
    lines = status_lines(
        Outcome.RECOVERED,
        key_hash=operation.key_hash,
        fence=operation.fence,
        expires_at=operation.expires_at,
        unrecorded=operation.unrecorded,
    )
    length = len(answer.body)
    return Reply(
        answer.status,
        head + lines,
        Outcome.RECOVERED,
        answer.body,
        length,
        fence=operation.fence,
        unrecorded=operation.unrecorded,
    )


def refused(
    rule: Rule, record: Record, key_hash: str, *, retry_after: int | None = None, forwarded: Forwarded | None = None
) -> Reply:
    """Why nothing is forwarded, as the record tells it; `retry_after`, in seconds, where that is known."""
    slug = rule.slug
    if slug is None:
        raise AssertionError(f"a refusal without a reason: {rule}")
    settled_at = datetime.fromtimestamp((record.settled_at or record.claimed_at) // MICROSECONDS, UTC)
    detail = " ".join(_SENTENCES[slug].split()).format(status=record.status, time=settled_at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    if slug is Slug.IN_PROGRESS:
        retry_after = RETRY_AFTER
    found = problem(slug, detail, retry_after=retry_after)
    return refusal(found, _REFUSALS[slug], key_hash=key_hash, fence=record.fence, forwarded=forwarded)


def unseen(seen: Record | None, key_hash: str) -> Reply:
    """The store could not be asked, so this request was not sent; of the operation, what was `seen` before counts."""
    match seen:
        case Record(phase=Phase.IN_FLIGHT):
            return refused(Rule(Verb.REFUSE, Slug.IN_PROGRESS), seen, key_hash)
        case Record(phase=Phase.UNKNOWN):
            return refused(Rule(Verb.REFUSE, Slug.OUTCOME_UNKNOWN), seen, key_hash)
    detail = "The store of this proxy is unavailable, so this request was not sent: retry with the same key."
    return refusal(problem(Slug.STORE_UNAVAILABLE, detail, retry_after=RETRY_AFTER), Outcome.REFUSED, key_hash=key_hash)


def lost(key_hash: str) -> Reply:
    """The store has lost what it would have to tell, so this request was not sent, and an earlier one may have been."""
    detail = (
        "The store of this proxy has lost records since the proxy started, so nobody knows whether this operation has already "
        "happened, and this request was not sent: find out at the upstream. A retry with the same key is carried out only when "
        "an operator has seen to the loss."
    )
    return refusal(problem(Slug.RECORDS_LOST, detail), Outcome.UNKNOWN, key_hash=key_hash)


def not_sent(outcome: NeverSent, operation: Particulars | None = None) -> Reply:
    """No byte of the request left this proxy."""
    again = "send it again" if operation is None else "retry with the same key"
    detail = f"The request was not sent, since {outcome.reason}: {again}."
    found = problem(Slug.NOT_SENT, detail, status=outcome.status, error=outcome.error)
    return _refusal_of(operation, found, Outcome.REFUSED)


def outcome_unknown(outcome: Unsure, operation: Particulars | None = None) -> Reply:
    """The request left, and no whole answer came back."""
    detail = (
        f"The request was sent, and {outcome.reason}: it may have been carried out. "
        "Find out at the upstream, and do not send it again under a new key before you know."
    )
    found = problem(Slug.OUTCOME_UNKNOWN, detail, status=outcome.status, error=outcome.error)
    return _refusal_of(operation, found, Outcome.UNKNOWN)


def relayed(head: AnswerHead, relay: Relay, settlement: Settlement, operation: Particulars) -> Reply:
    """An answer that has only begun, told as what it will be when it comes to its end."""
    return _answered(head.status, passed_on(head.reason, head.fields), relay, head.length, settlement, operation)


def reply_to(attempted: Attempted, settlement: Settlement, operation: Particulars) -> Reply:
    """What an attempt that is over says to the one who asked first."""
    answer, result = attempted.answer, attempted.result
    if answer is not None:
        return _answered(answer.status, attempted.head, answer.body, len(answer.body), settlement, operation)
    match result:
        case NeverSent():
            return not_sent(result, operation)
        case Unsure():
            return outcome_unknown(result, operation)
        case Answered():
            raise AssertionError(f"an answer that is not here: {attempted}")


def _answered(
    status: int,
    head: bytes,
    body: bytes | Relay,
    length: int | None,
    settlement: Settlement,
    operation: Particulars,
) -> Reply:
    outcome = _OUTCOMES[settlement]
    lines = status_lines(
        outcome,
        key_hash=operation.key_hash,
        fence=operation.fence,
        expires_at=operation.expires_at if settlement is Settlement.COMPLETE else None,
        unrecorded=operation.unrecorded,
    )
    return Reply(
        status,
        head + lines,
        outcome,
        body,
        length,
        fence=operation.fence,
        unrecorded=operation.unrecorded,
        forwarded=operation.forwarded,
    )


def _refusal_of(operation: Particulars | None, found: Problem, outcome: Outcome) -> Reply:
    if operation is None:
        return refusal(found, outcome)
    return refusal(
        found,
        outcome,
        key_hash=operation.key_hash,
        fence=operation.fence,
        unrecorded=operation.unrecorded,
        forwarded=operation.forwarded,
    )
