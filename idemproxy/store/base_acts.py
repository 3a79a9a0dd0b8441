"""A person's acts for the stores that run the transitions themselves: the step, and its note for the audit trail."""

from __future__ import annotations

from typing import NamedTuple

from idemproxy.core import transition
from idemproxy.core.record import Record
from idemproxy.core.transition import Act, Acted, Completion, Verb


class Deed(NamedTuple):
    """What became of an act; `note` goes into the audit trail in the same step, and is there only when the act was done."""

    acted: Acted
    note: Act | None


def resolve(
    record: Record | None, fence: int, resolution: Completion | None, who: str, why: str, now: int
) -> tuple[Record | None, Deed]:
    """core.transition.resolve with its note; a refused act leaves the very record that was there."""
    verb = Verb.RESOLVE_NOT_EXECUTED if resolution is None else Verb.RESOLVE_COMPLETED
    return _noted(record, transition.resolve(record, fence, resolution, now), verb, who, why, now)


def forget(record: Record | None, fence: int, who: str, why: str, now: int) -> tuple[Record | None, Deed]:
    """core.transition.forget with its note; a refused act leaves the very record that was there."""
    return _noted(record, transition.forget(record, fence, now), Verb.FORGET, who, why, now)


def _noted(
    before: Record | None, step: tuple[Record | None, Acted], verb: Verb, who: str, why: str, now: int
) -> tuple[Record | None, Deed]:
    left, acted = step
    seen = transition.aged(before, now)
    if acted is not Acted.DONE or seen is None:
        return before, Deed(acted, None)
    return left, Deed(acted, Act(verb, who, why, seen.fence, seen.phase, now))
