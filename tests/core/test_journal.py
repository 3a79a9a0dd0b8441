"""The atomic steps of a journal, and what its steps and the whole workflow have come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.core.journal import (
    ABSENT,
    Conflict,
    Entry,
    Journal,
    Memory,
    Note,
    Saved,
    SaveResult,
    StepStatus,
    WorkflowIdentity,
    aged,
    noted,
    saved,
    step_status,
    workflow_status,
)
from idemproxy.core.record import Identity, Phase, Record

NOW = 1_000_000
KEPT = 1_000


def note(name: str, kept: int = KEPT, action: str | None = None) -> Note:
    """A step whose record has a key of this name."""
    return Note(Identity("shared", "airline", name), "seats", kept, name, action)


HELD, PAID, SENT = note("hold", action="hold seat"), note("pay"), note("send")
MEMORY = Memory(b'{"city": "Oslo"}', NOW - 5, NOW - 9)
JOURNAL = Journal((Entry(HELD, NOW - 10),), MEMORY, NOW + 500)
OVER = replace(JOURNAL, forget_at=NOW)


# Notes


def test_steps_are_kept_in_the_order_in_which_they_were_first_begun() -> None:
    """Each step is there once, behind those before it, with the time of its first note."""
    journal = None
    for at, each in enumerate((HELD, PAID, HELD, SENT, PAID)):
        journal = noted(journal, each, NOW + at)

    assert journal is not None
    assert (Entry(HELD, NOW), Entry(PAID, NOW + 1), Entry(SENT, NOW + 3)) == journal.entries


def test_a_step_is_known_by_its_record_whatever_else_is_told_of_it() -> None:
    """A note again, also in other words, changes neither the step nor its time: only for how long it and the journal are kept."""
    for kept in (KEPT + 1, KEPT - 1):
        again = replace(HELD, route="other", step="2", action="hold it again", kept=kept)
        longer = max(KEPT, kept)
        entry = Entry(replace(HELD, kept=longer), JOURNAL.entries[0].at)

        assert replace(JOURNAL, entries=(entry,), forget_at=max(JOURNAL.forget_at, NOW + kept)) == noted(JOURNAL, again, NOW)


@pytest.mark.parametrize("part", ["scope", "upstream", "key_hash"])
def test_records_that_differ_in_any_part_are_steps_apart(part: str) -> None:
    """The same key in another scope, or for another upstream, is another step."""
    other = replace(HELD, record=HELD.record._replace(**{part: "other"}))

    assert (HELD, other) == tuple(entry.note for entry in noted(JOURNAL, other, NOW).entries)


@pytest.mark.parametrize(("kept", "forget_at"), [(500, NOW + 500), (499, NOW + 500), (501, NOW + 501)])
def test_a_note_only_prolongs(kept: int, forget_at: int) -> None:
    """The journal is kept for as long as any of its steps asks for."""
    assert forget_at == noted(JOURNAL, note("pay", kept), NOW).forget_at


def test_a_note_leaves_the_memory_alone() -> None:
    """What the agent keeps has nothing to do with its steps."""
    assert MEMORY == noted(JOURNAL, PAID, NOW).memory


# Time


@pytest.mark.parametrize(("now", "expected"), [(NOW - 1, OVER), (NOW, None), (NOW + 1, None)])
def test_a_journal_goes_as_a_whole_at_its_time(now: int, expected: Journal | None) -> None:
    """Until `forget_at` all of it is there, and from then on nothing."""
    assert expected == aged(OVER, now)


def test_no_journal_ages_to_none() -> None:
    """Absence stays absence."""
    assert None is aged(None, NOW)


def test_what_is_noted_after_the_end_begins_a_journal() -> None:
    """Nothing of a journal that is over comes back: neither its steps nor its memory."""
    assert Journal((Entry(PAID, NOW),), None, NOW + KEPT) == noted(OVER, PAID, NOW)


# Memory


@pytest.mark.parametrize(
    ("journal", "expected", "result"),
    [
        (None, None, Saved(NOW)),
        (None, ABSENT, Saved(NOW)),
        (None, NOW - 5, Conflict(ABSENT)),
        (replace(JOURNAL, memory=None), None, Saved(NOW)),
        (replace(JOURNAL, memory=None), ABSENT, Saved(NOW)),
        (replace(JOURNAL, memory=None), NOW - 5, Conflict(ABSENT)),
        (JOURNAL, None, Saved(NOW)),
        (JOURNAL, NOW - 5, Saved(NOW)),
        (JOURNAL, ABSENT, Conflict(NOW - 5)),
        (JOURNAL, NOW - 9, Conflict(NOW - 5)),
        (JOURNAL, NOW - 4, Conflict(NOW - 5)),
        (OVER, None, Saved(NOW)),
        (OVER, ABSENT, Saved(NOW)),
        (OVER, NOW - 5, Conflict(ABSENT)),
    ],
)
def test_a_memory_is_saved_if_it_has_the_expected_version(
    journal: Journal | None, expected: int | None, result: SaveResult
) -> None:
    """None takes any, ABSENT none; a stale version is told the present one, and nothing is changed."""
    left, told = saved(journal, b"new", expected, KEPT, NOW)

    before = aged(journal, NOW)
    version = before.memory.version if before and before.memory else ABSENT
    after = replace(before or Journal(), memory=Memory(b"new", NOW, version), forget_at=NOW + KEPT)
    assert result == told
    assert (after if isinstance(result, Saved) else before) == left


@pytest.mark.parametrize("expected", [ABSENT, NOW - 5])
def test_a_save_asked_again_is_the_same_save(expected: int) -> None:
    """Whoever did not hear the answer may ask again, also later: the version is the same, and nothing is changed."""
    journal = None if expected == ABSENT else JOURNAL
    first, result = saved(journal, b"new", expected, KEPT, NOW)

    assert (first, result) == saved(first, b"new", expected, KEPT, NOW + 7)


def test_a_save_asked_again_after_another_is_told_so() -> None:
    """What was saved in between is not taken back, and what another expected is not taken for one's own."""
    first, one = saved(JOURNAL, b"one", NOW - 5, KEPT, NOW)
    second, two = saved(first, b"two", one.version, KEPT, NOW + 1)

    assert (second, Conflict(two.version)) == saved(second, b"one", NOW - 5, KEPT, NOW + 2)
    assert (first, Conflict(one.version)) == saved(first, b"two", NOW - 5, KEPT, NOW + 2)


def test_the_same_content_may_be_saved_over_itself() -> None:
    """It is a save like any other, with a version of its own."""
    left, result = saved(JOURNAL, MEMORY.content, MEMORY.version, KEPT, NOW)

    assert Saved(NOW) == result
    assert left is not None
    assert Memory(MEMORY.content, NOW, MEMORY.version) == left.memory


def test_versions_grow_also_within_one_moment_and_when_the_clock_is_set_back() -> None:
    """Each is above the one before, whatever the clock shows."""
    journal, versions = None, []
    for now in (NOW, NOW, NOW - 50, NOW + 2):
        journal, result = saved(journal, b"new", None, KEPT, now)
        versions.append(result.version)

    assert [NOW, NOW + 1, NOW + 2, NOW + 3] == versions


def test_no_version_is_given_again_after_the_journal_has_gone() -> None:
    """Who still has a version of the memory before cannot take the new one for it."""
    first, before = saved(None, b"old", ABSENT, KEPT, NOW)
    later, after = saved(first, b"new", ABSENT, KEPT, NOW + KEPT)

    assert after.version > before.version
    assert (later, Conflict(after.version)) == saved(later, b"newer", before.version, KEPT, NOW + KEPT)


@pytest.mark.parametrize(("kept", "forget_at"), [(500, NOW + 500), (499, NOW + 500), (501, NOW + 501)])
def test_a_save_only_prolongs(kept: int, forget_at: int) -> None:
    """The steps are kept for as long as they were to be, and the memory with them."""
    left, _ = saved(JOURNAL, b"new", None, kept, NOW)

    assert left is not None
    assert (forget_at, JOURNAL.entries) == (left.forget_at, left.entries)


# What has become of it

RECORD = Record(Phase.IN_FLIGHT, "v1:f", NOW, "me", "seats", claimed_at=NOW, lease_until=NOW + 15)
DONE = replace(RECORD, phase=Phase.COMPLETED, settled_at=NOW, expires_at=NOW + 1, forget_at=NOW + 2)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (RECORD, StepStatus.IN_PROGRESS),
        (replace(RECORD, status=500), StepStatus.IN_PROGRESS),
        (replace(RECORD, phase=Phase.UNKNOWN), StepStatus.UNKNOWN),
        (replace(RECORD, phase=Phase.UNKNOWN, status=500), StepStatus.UNKNOWN),
        (replace(DONE, status=200), StepStatus.COMPLETED),
        (replace(DONE, status=399), StepStatus.COMPLETED),
        (replace(DONE, status=400), StepStatus.FAILED),
        (replace(DONE, status=501), StepStatus.FAILED),
        (DONE, StepStatus.COMPLETED),
        (replace(DONE, phase=Phase.EXPIRED, status=201), StepStatus.COMPLETED),
        (replace(DONE, phase=Phase.EXPIRED, status=402), StepStatus.FAILED),
    ],
)
def test_a_step_has_come_as_far_as_its_record(record: Record, expected: StepStatus) -> None:
    """Only the record knows: an answer that the upstream gave as an error has failed, also when it is kept no longer."""
    assert expected is step_status(Entry(HELD, NOW), record, NOW)


@pytest.mark.parametrize(
    ("now", "expected"),
    [(NOW, StepStatus.FAILED), (NOW + KEPT - 1, StepStatus.FAILED), (NOW + KEPT, StepStatus.UNKNOWN)],
)
def test_a_step_without_a_record_failed_for_as_long_as_a_record_would_be_kept(now: int, expected: StepStatus) -> None:
    """Its key was released; but once a record may have gone by itself, its absence proves nothing."""
    assert expected is step_status(Entry(HELD, NOW), None, now)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", None),
        ("C", "C"),
        ("CF", "F"),
        ("FC", "C"),
        ("PCC", "P"),
        ("CPF", "P"),
        ("PUC", "U"),
        ("UPP", "U"),
    ],
)
def test_a_workflow_has_come_as_far_as_its_most_pressing_step(steps: str, expected: str | None) -> None:
    """One that is unknown comes before one that is under way, and else the last one counts; without steps there is no status."""
    letters = {
        "C": StepStatus.COMPLETED,
        "F": StepStatus.FAILED,
        "P": StepStatus.IN_PROGRESS,
        "U": StepStatus.UNKNOWN,
    }

    assert (None if expected is None else letters[expected]) is workflow_status([letters[step] for step in steps])


def test_a_workflow_is_named_by_one_line() -> None:
    """Scope and hash, as stores make keys of them; and what an agent keeps is not in what is logged."""
    assert "shared/ab12" == str(WorkflowIdentity("shared", "ab12"))
    assert "Oslo" not in repr(JOURNAL)
