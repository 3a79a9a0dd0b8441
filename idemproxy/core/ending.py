"""What is written last about an attempt: its judgement, in the light of what the record was before, as an ending."""

from __future__ import annotations

from idemproxy.core.message import Answer
from idemproxy.core.outcome import AttemptResult, Settlement, judge
from idemproxy.core.policy import Policy
from idemproxy.core.record import MICROSECONDS, Record, Source
from idemproxy.core.replay import keep
from idemproxy.core.transition import Completion, Doubt, Ending, Release


def conclude(
    result: AttemptResult, answer: Answer | None, head: bytes, policy: Policy, before: Record | None
) -> tuple[Settlement, Ending]:
    """How an attempt is judged, and what is written about it.

    `head` is the answer's, as it is passed on (core.replay). `before` is the unknown record that was claimed again for it, None
    where there was none. An attempt without effect releases the key; but not where the one before it may have had one: then the
    outcome is as unknown as it was.
    """
    settlement = judge(result, policy.outcome)
    if settlement is Settlement.COMPLETE and answer is not None:
        return settlement, completed(answer, head, policy, Source.ANSWERED)
    if settlement is Settlement.RELEASE:
        return (settlement, Release()) if before is None else (Settlement.MARK_UNKNOWN, still_unknown(before))
    return Settlement.MARK_UNKNOWN, Doubt() if answer is None else Doubt(answer.status, answer=keep(answer, head, policy))


def completed(answer: Answer, head: bytes, policy: Policy, source: Source) -> Completion:
    """An answer to be replayed, for as long as the route keeps it; `head` as for `conclude`."""
    retention, mark = round(policy.retention * MICROSECONDS), round(policy.expired_mark * MICROSECONDS)
    return Completion(answer.status, retention, mark, source, keep(answer, head, policy))


def still_unknown(before: Record) -> Doubt:
    """What puts an unknown record back as it was: its kept answer, since when it is unknown, and whose it is to settle."""
    return Doubt(before.status, before.settled_at, before.answer, (before.fence, before.owner))
