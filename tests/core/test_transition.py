"""The atomic steps of a record: a table of every state and call, and what the table cannot say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from idemproxy.core import transition
from idemproxy.core.record import Phase, Record, Source
from idemproxy.core.transition import Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled

NOW = 1_000_000
FENCE = 500_000
LEASE, RETENTION, MARK = 100, 1_000, 5_000
HOLD = Hold(FENCE, "me", "v1:same", "charges", FENCE)
OLD = replace(HOLD, fence=FENCE - 1)
TWIN = replace(HOLD, owner="someone else")
ASK = Ask("v1:same", "next", "charges", LEASE)
COMPLETION = Completion(201, RETENTION, MARK, answer=b"answer")
RESOLUTION = Completion(202, RETENTION, MARK, Source.RESOLVED, b"resolved")

ALIVE = Record(Phase.IN_FLIGHT, "v1:same", FENCE, "me", "charges", claimed_at=FENCE, lease_until=NOW + 1)
UNKNOWN = replace(ALIVE, phase=Phase.UNKNOWN, lease_until=NOW - 1, settled_at=NOW - 1, status=500, answer=b"error")
COMPLETED = replace(
    ALIVE, phase=Phase.COMPLETED, settled_at=NOW - 9, expires_at=NOW + 1, forget_at=NOW + 2, status=200, answer=b"first"
)
EXPIRED = replace(COMPLETED, phase=Phase.EXPIRED, expires_at=NOW - 1, answer=None)
STATES: dict[str, Record | None] = {
    "absent": None,
    "alive": ALIVE,
    "lease over": replace(ALIVE, lease_until=NOW),
    "unknown": UNKNOWN,
    "completed": COMPLETED,
    "retention over": replace(COMPLETED, expires_at=NOW),
    "expired": EXPIRED,
    "mark over": replace(EXPIRED, forget_at=NOW),
    "both over": replace(COMPLETED, expires_at=NOW - 1, forget_at=NOW),
}

# The state before, as above, and what is left in the store after each call, with what the caller is told. "-" is absence.
TABLE = """
                | claim             | claim, other body | reclaim           | same owner
absent          | granted in_flight | granted in_flight | granted in_flight | granted in_flight
alive           | found in_flight   | found in_flight   | found in_flight   | granted in_flight
lease over      | found unknown     | found unknown     | granted in_flight | found unknown
unknown         | found unknown     | found unknown     | granted in_flight | found unknown
completed       | found completed   | found completed   | found completed   | found completed
retention over  | found expired     | found expired     | granted in_flight | found expired
expired         | found expired     | found expired     | granted in_flight | found expired
mark over       | granted in_flight | granted in_flight | granted in_flight | granted in_flight
both over       | granted in_flight | granted in_flight | granted in_flight | granted in_flight

                | renew             | complete            | release   | mark unknown
absent          | False -           | rewritten completed | written - | rewritten unknown
alive           | True in_flight    | written completed   | written - | written unknown
lease over      | False in_flight   | written completed   | written - | written unknown
unknown         | False unknown     | written completed   | written - | written unknown
completed       | False completed   | written completed   | stale completed | stale completed
retention over  | False completed   | written completed   | stale completed | stale completed
expired         | False expired     | written expired     | stale expired | stale expired
mark over       | False expired     | written expired     | stale expired | stale expired
both over       | False completed   | written completed   | stale completed | stale completed

                | resolve               | not executed          | forget
absent          | absent -              | absent -              | absent -
alive           | wrong_phase in_flight | wrong_phase in_flight | wrong_phase in_flight
lease over      | done completed        | done -                | done -
unknown         | done completed        | done -                | done -
completed       | wrong_phase completed | wrong_phase completed | done -
retention over  | wrong_phase expired   | wrong_phase expired   | done -
expired         | wrong_phase expired   | wrong_phase expired   | done -
mark over       | absent -              | absent -              | absent -
both over       | absent -              | absent -              | absent -
"""


def rows() -> list[tuple[str, str, str]]:
    """The table as (state, call, expected)."""
    cells = []
    for block in TABLE.strip("\n").split("\n\n"):
        head, *lines = [[cell.strip() for cell in line.split("|")] for line in block.split("\n")]
        cells += [(line[0], call, cell) for line in lines for call, cell in zip(head[1:], line[1:], strict=True)]
    return cells


Result = Granted | Found | Settled | Acted | bool


CALLS: dict[str, Callable[[Record | None, Hold], tuple[Record | None, Result]]] = {
    "claim": lambda record, _: transition.claim(record, ASK, NOW),
    "claim, other body": lambda record, _: transition.claim(record, replace(ASK, fingerprint="v1:other"), NOW),
    "reclaim": lambda record, hold: transition.claim(record, replace(ASK, reclaim=hold.fence), NOW),
    "same owner": lambda record, hold: transition.claim(record, replace(ASK, owner=hold.owner), NOW),
    "renew": lambda record, hold: transition.renew(record, hold, LEASE, NOW),
    "complete": lambda record, hold: transition.complete(record, hold, COMPLETION, NOW),
    "release": transition.release,
    "mark unknown": lambda record, hold: transition.mark_unknown(record, hold, Doubt(502, answer=b"another error"), NOW),
    "resolve": lambda record, hold: transition.resolve(record, hold.fence, RESOLUTION, NOW),
    "not executed": lambda record, hold: transition.resolve(record, hold.fence, None, NOW),
    "forget": lambda record, hold: transition.forget(record, hold.fence, NOW),
}
"""The calls by their names in the table."""


@pytest.mark.parametrize(("state", "call", "expected"), rows())
def test_every_call_in_every_state_does_what_the_table_says(state: str, call: str, expected: str) -> None:
    """The caller is told, and the store keeps, what the table says; what is told of a record is what is kept."""
    left, result = CALLS[call](STATES[state], HOLD)

    told = str(result) if isinstance(result, (Settled, Acted, bool)) else type(result).__name__
    assert expected.lower() == f"{told.lower()} {left.phase if left else '-'}"
    if isinstance(result, Found):
        assert left == result.record
    if isinstance(result, Granted):
        assert left is not None
        assert result.hold == Hold(left.fence, left.owner, left.fingerprint, left.route, left.claimed_at)


def test_the_table_has_every_state() -> None:
    """No call is left out of the table, and no state of any part of it."""
    assert [(state, call) for call in CALLS for state in STATES] == sorted(
        [(state, call) for state, call, _ in rows()], key=lambda cell: list(CALLS).index(cell[1])
    )


@pytest.mark.parametrize("state", [state for state, record in STATES.items() if record])
@pytest.mark.parametrize("hold", [OLD, TWIN], ids=["old fence", "other owner"])
@pytest.mark.parametrize("call", ["renew", "complete", "release", "mark unknown"])
def test_no_other_hold_writes(state: str, hold: Hold, call: str) -> None:
    """A write with an older fence, or with the same fence and another owner, leaves the very record that was there."""
    left, result = CALLS[call](STATES[state], hold)

    assert result is (False if call == "renew" else Settled.STALE)
    assert left is STATES[state]


@pytest.mark.parametrize("call", ["resolve", "not executed", "forget"])
@pytest.mark.parametrize("hold", [OLD, replace(HOLD, fence=FENCE + 1)], ids=["an older fence", "a newer fence"])
@pytest.mark.parametrize("state", ["alive", "lease over", "unknown", "completed", "retention over", "expired"])
def test_no_person_acts_on_another_fence(state: str, hold: Hold, call: str) -> None:
    """An act on what has moved on since the person looked is stale, and leaves the record as time alone does."""
    left, result = CALLS[call](STATES[state], hold)

    assert (transition.aged(STATES[state], NOW), Acted.STALE) == (left, result)


@pytest.mark.parametrize("now", [NOW, FENCE - 1_000], ids=["later", "by a clock that was set back"])
def test_a_resolution_is_a_completion_under_a_fence_of_its_own(now: int) -> None:
    """What the person says replaces what was known; no hold that was ever given fits the record any more."""
    left, _ = transition.resolve(UNKNOWN, FENCE, RESOLUTION, now)

    assert left == replace(
        UNKNOWN,
        phase=Phase.COMPLETED,
        fence=max(now, FENCE + 1),
        owner="",
        settled_at=now,
        expires_at=now + RETENTION,
        forget_at=now + RETENTION + MARK,
        status=202,
        source=Source.RESOLVED,
        answer=b"resolved",
    )


@pytest.mark.parametrize("looked_at", [NOW, NOW + 10**12])
def test_what_is_unknown_by_its_lease_is_so_since_its_end(looked_at: int) -> None:
    """However late anyone looks, the time is the end of the lease."""
    record = transition.aged(replace(ALIVE, lease_until=NOW), looked_at)

    assert record is not None
    assert (Phase.UNKNOWN, NOW) == (record.phase, record.settled_at)


@pytest.mark.parametrize("record", [ALIVE, UNKNOWN, None], ids=["alive", "unknown", "lost"])
def test_a_mark_keeps_the_time_that_it_names(record: Record | None) -> None:
    """A doubt that says since when is noted with that time, and one that does not, with now."""
    times = []
    for since in (NOW - 500, None):
        left, _ = transition.mark_unknown(record, HOLD, Doubt(since=since), NOW)
        times.append(left and left.settled_at)

    assert [NOW - 500, NOW] == times


@pytest.mark.parametrize("state", ["lease over", "unknown", "retention over", "expired"])
def test_a_reclaim_with_another_fence_or_fingerprint_is_not_granted(state: str) -> None:
    """Only who names the fence that was found, and asks the same thing, may run it again."""
    refused = [replace(ASK, reclaim=FENCE - 1), replace(ASK, reclaim=FENCE + 1), Ask("v1:other", "next", "charges", LEASE, FENCE)]

    assert [Found] * 3 == [type(transition.claim(STATES[state], ask, NOW)[1]) for ask in refused]


def test_a_reclaim_leaves_nothing_of_the_first_run() -> None:
    """A record that is run again is as one that is claimed for the first time, but for its fence."""
    left, _ = transition.claim(UNKNOWN, replace(ASK, reclaim=FENCE), NOW)

    assert left == Record(Phase.IN_FLIGHT, "v1:same", NOW, "next", "charges", NOW, NOW + LEASE)


def test_a_fence_is_above_the_last_one_also_when_the_clock_was_set_back() -> None:
    """The fence of a record never falls: with an earlier clock it is one more than the last."""
    left, _ = transition.claim(UNKNOWN, replace(ASK, reclaim=FENCE), FENCE - 1_000)

    assert left is not None
    assert (FENCE + 1, FENCE - 1_000) == (left.fence, left.claimed_at)


def test_times_of_a_completion_count_from_now() -> None:
    """Retention begins at the completion and the mark at its end, whenever the claim was."""
    left, _ = transition.complete(ALIVE, HOLD, COMPLETION, NOW)

    assert left == replace(
        ALIVE,
        phase=Phase.COMPLETED,
        settled_at=NOW,
        expires_at=NOW + RETENTION,
        forget_at=NOW + RETENTION + MARK,
        status=201,
        answer=b"answer",
    )


def test_a_repeated_completion_changes_nothing() -> None:
    """The second of two equal completions leaves the very record of the first."""
    first, _ = transition.complete(ALIVE, HOLD, COMPLETION, NOW)
    second, result = transition.complete(first, HOLD, replace(COMPLETION, answer=b"other"), NOW + 1)

    assert (True, Settled.WRITTEN) == (second is first, result)


def test_a_lost_record_is_written_from_its_hold() -> None:
    """Owner, fence, fingerprint, route and time of the claim are what the hold says."""
    left, _ = transition.mark_unknown(None, HOLD, Doubt(502, answer=b"error"), NOW)

    assert left == replace(ALIVE, phase=Phase.UNKNOWN, lease_until=FENCE, settled_at=NOW, status=502, answer=b"error")
