"""The contract of all stores for what a holder writes last: completions, releases, marks of the unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.core.record import Phase, Record, Source
from idemproxy.core.transition import Doubt, Settled
from idemproxy.store.base import Store
from tests.store.harness import Harness
from tests.store.steps import (
    ANSWER,
    EXPIRED_MARK,
    LEASE,
    RETENTION,
    SETTLEMENTS,
    ask,
    completion,
    found,
    granted,
    identity,
    listed,
    phases,
)

ME = identity()
DAY = 86_400


# Completion


@pytest.mark.parametrize(
    "answer",
    [ANSWER, bytes(range(256)) * 4096, b"", b"\x00", None],
    ids=["bytes", "1 MiB of every byte", "empty", "a zero byte", "not kept"],
)
async def test_an_answer_comes_back_byte_for_byte(harness: Harness, store: Store, answer: bytes | None) -> None:
    """What was completed is found, by every process, as it was given; an empty answer is not a missing one."""
    hold = await granted(store, ME)

    settled = await store.complete(ME, hold, completion(answer, status=299))

    other = await harness.open()
    record = await found(other, ME)
    assert Settled.WRITTEN is settled
    assert answer == record.answer
    assert record.settled_at is not None
    assert record == Record(
        phase=Phase.COMPLETED,
        fingerprint="v1:same",
        fence=hold.fence,
        owner=hold.owner,
        route="charges",
        claimed_at=hold.claimed_at,
        lease_until=hold.claimed_at + LEASE,
        settled_at=record.settled_at,
        expires_at=record.settled_at + RETENTION,
        forget_at=record.settled_at + RETENTION + EXPIRED_MARK,
        status=299,
        answer=answer,
    )


@pytest.mark.parametrize("source", Source)
async def test_where_an_answer_comes_from_is_kept(harness: Harness, store: Store, source: Source) -> None:
    """Read, claim and list tell the source that the completion named, also in another process."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, replace(completion(), source=source))
    other = await harness.open()

    read, claimed = await other.read(ME), await found(other, ME)
    shown = (await listed(other)).get(ME)

    assert [source] * 3 == [record and record.source for record in (read, claimed, shown)]


async def test_a_record_that_is_run_again_has_no_source_of_the_first_run(harness: Harness, store: Store) -> None:
    """An expired record whose answer was recovered is answered anew by whoever may run it again."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, replace(completion(), source=Source.RECOVERED))
    await harness.advance(DAY + 1)
    again = await granted(store, ME, ask(reclaim=hold.fence))

    await store.complete(ME, again, completion())

    assert Source.ANSWERED is (await found(store, ME)).source


async def test_a_completion_by_an_old_fence_changes_nothing(store: Store) -> None:
    """A holder that wakes after another was granted is told so; what the new holder does stands."""
    old = await granted(store, ME)
    await store.mark_unknown(ME, old, Doubt())
    new = await granted(store, ME, ask(reclaim=old.fence))

    assert Settled.STALE is await store.complete(ME, old, completion(b"old"))
    assert Settled.WRITTEN is await store.complete(ME, new, completion(b"new"))
    assert Settled.STALE is await store.complete(ME, old, completion(b"old"))
    record = await found(store, ME)
    assert (new.fence, b"new") == (record.fence, record.answer)


async def test_the_nonce_tells_two_equal_fences_apart(store: Store) -> None:
    """If the clock was set back, a fence may come again, but not with the same owner: the other one is stale."""
    hold = await granted(store, ME)
    twin = replace(hold, owner="someone-else")

    assert [Settled.STALE] * 3 == [await settle(store, ME, twin) for settle in SETTLEMENTS.values()]
    assert [False] == list(await store.renew([(ME, twin)], LEASE))
    assert [Phase.IN_FLIGHT] == await phases(store, ME)


@pytest.mark.parametrize("by", ["lease", "mark"])
async def test_a_late_completion_settles_an_unknown_record(harness: Harness, store: Store, by: str) -> None:
    """A holder that comes back late, with the current fence, still says what happened."""
    hold = await granted(store, ME)
    if by == "lease":
        await harness.advance(16)
        assert Phase.UNKNOWN is (await found(store, ME)).phase
    else:
        await store.mark_unknown(ME, hold, Doubt(500, answer=b"an error"))

    assert Settled.WRITTEN is await store.complete(ME, hold, completion())
    record = await found(store, ME)
    assert (Phase.COMPLETED, 201, ANSWER) == (record.phase, record.status, record.answer)


async def test_the_completion_of_a_lost_record_writes_it_anew(harness: Harness, store: Store) -> None:
    """The effect is a fact, whoever forgot it: the record is there again, and the holder is told that it was lost."""
    hold = await granted(store, ME)
    await harness.lose(ME)

    assert Settled.REWRITTEN is await store.complete(ME, hold, completion())
    record = await found(store, ME)
    assert (Phase.COMPLETED, hold.fence, hold.owner, hold.fingerprint, hold.route, hold.claimed_at, ANSWER) == (
        record.phase,
        record.fence,
        record.owner,
        record.fingerprint,
        record.route,
        record.claimed_at,
        record.answer,
    )


async def test_a_lost_record_that_someone_else_holds_is_not_overwritten(harness: Harness, store: Store) -> None:
    """After a loss the next claim is granted; the first holder's writes are stale then."""
    first = await granted(store, ME)
    await harness.lose(ME)
    await granted(store, ME)

    assert [Settled.STALE] * 3 == [await settle(store, ME, first) for settle in SETTLEMENTS.values()]
    assert [Phase.IN_FLIGHT] == await phases(store, ME)


async def test_a_completion_may_be_repeated(harness: Harness, store: Store) -> None:
    """The same completion again, its first reply lost, is written and changes nothing, also after the answer has expired."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())
    before = await store.read(ME)

    assert Settled.WRITTEN is await store.complete(ME, hold, completion(b"another"))
    assert before == await store.read(ME)
    await harness.advance(DAY + 1)
    assert Settled.WRITTEN is await store.complete(ME, hold, completion())
    assert [Phase.EXPIRED] == await phases(store, ME)


# Release


async def test_a_release_frees_the_key(store: Store) -> None:
    """What was proven not to have happened leaves nothing: the next claim is granted. A release may be repeated."""
    hold = await granted(store, ME)

    assert [Settled.WRITTEN] * 2 == [await store.release(ME, hold), await store.release(ME, hold)]
    assert [None] == await phases(store, ME)
    await granted(store, ME)
    assert Settled.STALE is await store.release(ME, hold)
    assert [Phase.IN_FLIGHT] == await phases(store, ME)


async def test_an_unknown_record_can_be_released_by_its_holder(store: Store) -> None:
    """A holder that learns that nothing was executed frees the key also when the record is unknown already."""
    hold = await granted(store, ME)
    await store.mark_unknown(ME, hold, Doubt(500, answer=ANSWER))

    assert Settled.WRITTEN is await store.release(ME, hold)
    assert [None] == await phases(store, ME)


@pytest.mark.parametrize("seconds", [0, DAY + 1])
async def test_a_completed_record_is_not_released(harness: Harness, store: Store, seconds: int) -> None:
    """What happened cannot be freed by its holder, neither completed nor expired."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())
    await harness.advance(seconds)
    before = await store.read(ME)

    assert Settled.STALE is await store.release(ME, hold)
    assert before == await store.read(ME)


# Marking unknown


@pytest.mark.parametrize("lost", [False, True])
async def test_a_mark_keeps_the_time_that_it_names(harness: Harness, store: Store, *, lost: bool) -> None:
    """Where a probe finds that the outcome is still unknown, the record stays unknown since when it became so."""
    hold = await granted(store, ME)
    await store.mark_unknown(ME, hold, Doubt(500))
    await harness.advance(60)
    first = await store.read(ME)
    assert first is not None
    if lost:
        await harness.lose(ME)

    await store.mark_unknown(ME, hold, Doubt(500, since=first.settled_at, answer=ANSWER))

    record = await store.read(ME)
    assert record is not None
    assert (Phase.UNKNOWN, first.settled_at, ANSWER) == (record.phase, record.settled_at, record.answer)


@pytest.mark.parametrize(("status", "answer"), [(None, None), (500, ANSWER), (502, b""), (504, None)])
async def test_a_mark_keeps_status_and_answer(store: Store, status: int | None, answer: bytes | None) -> None:
    """An error of the upstream stays with the unknown record, byte for byte; a mark may be repeated."""
    hold = await granted(store, ME)

    marks = [await store.mark_unknown(ME, hold, Doubt(status, answer=answer)) for _ in range(2)]

    record = await found(store, ME)
    assert [Settled.WRITTEN] * 2 == marks
    assert (Phase.UNKNOWN, status, answer, None, None) == (
        record.phase,
        record.status,
        record.answer,
        record.expires_at,
        record.forget_at,
    )


async def test_a_mark_on_a_lost_record_writes_it_anew(harness: Harness, store: Store) -> None:
    """That something may have happened is a fact as well: the record is unknown again, not absent."""
    hold = await granted(store, ME)
    await harness.lose(ME)

    assert Settled.REWRITTEN is await store.mark_unknown(ME, hold, Doubt(500, answer=ANSWER))
    record = await found(store, ME)
    assert (Phase.UNKNOWN, hold.fence, 500, ANSWER) == (record.phase, record.fence, record.status, record.answer)


async def test_a_completed_record_is_not_marked(store: Store) -> None:
    """What is known stays known."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())

    assert Settled.STALE is await store.mark_unknown(ME, hold, Doubt(500, answer=b"late"))
    record = await found(store, ME)
    assert (Phase.COMPLETED, 201, ANSWER) == (record.phase, record.status, record.answer)


async def test_a_claim_that_was_made_only_to_ask_is_given_back(store: Store) -> None:
    """A doubt can give the record back to the hold before: that one may complete, and who asks goes by its fence."""
    first = await granted(store, ME)
    await store.mark_unknown(ME, first, Doubt(502))
    asking = await granted(store, ME, ask(reclaim=first.fence))

    await store.mark_unknown(ME, asking, Doubt(502, back_to=(first.fence, first.owner)))

    record = await store.read(ME)
    assert record is not None
    assert (Phase.UNKNOWN, first.fence, first.owner) == (record.phase, record.fence, record.owner)
    assert Settled.STALE is await store.complete(ME, asking, completion())
    assert Settled.WRITTEN is await store.complete(ME, first, completion())
