"""What must hold in every state and at every step: the invariants of contract 7, and what callers are told."""

from __future__ import annotations

from enum import Enum
from typing import Final

from idemproxy.core import transition
from idemproxy.core.record import Phase, Record
from idemproxy.core.transition import Acted, Hold
from tests.model.rules import LEASE, TICK
from tests.model.state import Stage, State, Told


class Promise(Enum):
    """What a step can break."""

    ONE_EFFECT = "a key has at most one effect"
    ONE_FORWARD = "a fence forwards at most once"
    LEASE_ALONE = "no second fence is granted while the lease of the first one lives"
    SENDER_ALONE = "nobody is granted a claim while another may still send by its own view of its lease"
    CURRENT_WRITES = "nothing but the current fence writes"
    TIME_FREES_NOTHING = "time alone never turns in_flight or unknown into absent"
    ONE_ANSWER = "the answer once given as what happened is what every later one gives"
    NO_MEANS_NO = "nobody is told `executed: no` of what was executed"
    WAY_OUT = "every record has a way out: it is completed, or its lease ends and a person can resolve it"


_OPEN: Final = (Phase.IN_FLIGHT, Phase.UNKNOWN)


def broken_by_grant(state: State, who: int, before: Record | None, reclaim: int | None, now: int) -> Promise | None:
    """When `who` has been granted a new fence over the record `before`."""
    if before is not None and before.phase is Phase.IN_FLIGHT and before.lease_until > now:
        return Promise.LEASE_ALONE
    if before is not None and before.phase in _OPEN and reclaim is None:
        return Promise.TIME_FREES_NOTHING
    if any(
        other != who and request.stage == Stage.READY and state.tick < request.until
        for other, request in enumerate(state.requests)
    ):
        return Promise.SENDER_ALONE
    return None


def broken_by_write(before: Record | None, after: Record | None, hold: Hold) -> Promise | None:
    """When a holder has renewed or ended what it holds."""
    foreign = before is not None and (before.fence, before.owner) != (hold.fence, hold.owner)
    return Promise.CURRENT_WRITES if foreign and after != before else None


def broken_by_byte(state: State, fence: int) -> Promise | None:
    """When a first byte leaves under this fence."""
    return Promise.ONE_FORWARD if fence in state.fences else None


def broken_by_effect(state: State) -> Promise | None:
    """When the upstream has acted."""
    return Promise.ONE_EFFECT if state.effects > 1 and not state.excused else None


def broken_by_telling(state: State, told: str, answer: int) -> Promise | None:
    """When a caller is told what became of its operation."""
    if state.excused:
        return None
    if told == Told.NOT_EXECUTED and state.effects:
        return Promise.NO_MEANS_NO
    return Promise.ONE_ANSWER if answer and state.given not in (0, answer) else None


def broken_by_record(record: Record | None, now: int) -> Promise | None:
    """For every record that is ever stored: what is left to do about it when all proxies are gone."""
    later = now + 10 * LEASE * TICK
    left = transition.aged(record, later)
    if record is not None and record.phase in _OPEN and (left is None or left.phase is not Phase.UNKNOWN):
        return Promise.TIME_FREES_NOTHING
    if left is None or left.phase is not Phase.UNKNOWN:
        return None
    _, acted = transition.resolve(left, left.fence, None, later)
    return None if acted is Acted.DONE else Promise.WAY_OUT
