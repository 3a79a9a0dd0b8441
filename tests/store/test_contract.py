"""The contract of all stores, promise by promise: what store.base and core.transition say, on every store there is."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from idemproxy.core.record import Phase, Record
from idemproxy.core.transition import Doubt, Found, Granted, Settled
from idemproxy.store.base import Store
from tests.store.harness import Harness
from tests.store.steps import (
    ANSWER,
    LEASE,
    ask,
    completion,
    found,
    granted,
    identity,
    phases,
)

ME = identity()
DAY = 86_400
YEAR = 366 * DAY


async def test_a_started_store_is_named_and_can_take_writes(harness: Harness, store: Store) -> None:
    """`check` returns when the store can take writes, and `name` is the value of the metrics' label."""
    await store.check()

    assert harness.name == store.name


# Claims


async def test_one_of_many_concurrent_claims_is_granted(harness: Harness) -> None:
    """Of claims that arrive together, in two processes, one is granted; all others find it in flight."""
    stores = [await harness.open(), await harness.open()]

    results = await asyncio.gather(*[stores[number % 2].claim(ME, ask()) for number in range(40)])

    holds = [result.hold for result in results if isinstance(result, Granted)]
    records = [result.record for result in results if isinstance(result, Found)]
    assert (1, 39) == (len(holds), len(records))
    assert {(Phase.IN_FLIGHT, holds[0].fence, holds[0].owner)} == {(each.phase, each.fence, each.owner) for each in records}


async def test_a_granted_claim_holds_what_was_asked(store: Store) -> None:
    """The hold carries the asker's owner, fingerprint and route; its fence is the time of the claim."""
    hold = await granted(store, ME, ask("v1:this", owner="me"))

    assert ("me", "v1:this", "charges", hold.fence) == (hold.owner, hold.fingerprint, hold.route, hold.claimed_at)


async def test_a_record_in_flight_is_found_as_it_was_claimed(store: Store) -> None:
    """Whoever asks next, also with another fingerprint, is shown the record in flight and not granted."""
    hold = await granted(store, ME)

    record = await found(store, ME, ask("v1:other"))

    assert record == Record(
        phase=Phase.IN_FLIGHT,
        fingerprint=hold.fingerprint,
        fence=hold.fence,
        owner=hold.owner,
        route=hold.route,
        claimed_at=hold.claimed_at,
        lease_until=hold.claimed_at + LEASE,
    )


async def test_the_same_owner_gets_the_same_hold_again(harness: Harness, store: Store) -> None:
    """A claim asked again by its owner, its first reply lost, is the same claim: also through another process, and later."""
    wish = ask()
    first = await granted(store, ME, wish)
    assert first == await granted(store, ME, wish)
    await harness.advance(5)
    other = await harness.open()

    later = await granted(other, ME, wish)

    assert (first.fence, first.owner) == (later.fence, later.owner)


async def test_two_scopes_and_two_upstreams_are_apart(store: Store) -> None:
    """The same key in another scope or for another upstream is another operation."""
    apart = [identity("a"), identity("b"), identity("a", scope="other"), identity("a", upstream="airline")]
    for each in apart[:-1]:
        await granted(store, each)

    assert [Phase.IN_FLIGHT] * 3 + [None] == await phases(store, *apart)


@pytest.mark.parametrize("settled_as", ["unknown", "expired"])
@pytest.mark.parametrize(
    ("wrong_fence", "wrong_fingerprint", "expected"),
    [(False, False, Granted), (True, False, Found), (False, True, Found), (True, True, Found)],
)
async def test_a_reclaim_needs_the_right_fence_and_fingerprint(
    harness: Harness, store: Store, *, settled_as: str, wrong_fence: bool, wrong_fingerprint: bool, expected: type
) -> None:
    """An unknown or expired record is granted anew to whoever names its fence and asks the same thing, and to no one else."""
    hold = await granted(store, ME)
    if settled_as == "unknown":
        await store.mark_unknown(ME, hold, Doubt(500, answer=ANSWER))
    else:
        await store.complete(ME, hold, completion())
        await harness.advance(DAY + 1)
    before = await store.read(ME)
    assert before is not None
    assert settled_as == before.phase

    wish = ask("v1:other" if wrong_fingerprint else "v1:same", reclaim=hold.fence - 1 if wrong_fence else hold.fence)
    result = await store.claim(ME, wish)

    assert expected is type(result)
    after = await store.read(ME)
    assert after is not None
    if isinstance(result, Granted):
        taken = result.hold
        assert taken.fence > hold.fence
        assert after == Record(
            Phase.IN_FLIGHT, "v1:same", taken.fence, wish.owner, "charges", taken.claimed_at, taken.claimed_at + LEASE
        )
    else:
        assert before == after


@pytest.mark.parametrize("completed", [False, True])
async def test_a_reclaim_of_another_phase_is_not_granted(store: Store, *, completed: bool) -> None:
    """A record in flight or completed cannot be run again, whatever fence is named."""
    hold = await granted(store, ME)
    if completed:
        await store.complete(ME, hold, completion())

    record = await found(store, ME, ask(reclaim=hold.fence))

    assert (Phase.COMPLETED if completed else Phase.IN_FLIGHT, hold.fence) == (record.phase, record.fence)


async def test_fences_grow_and_are_never_given_again(harness: Harness, store: Store) -> None:
    """After a release, a reclaim, a loss and a forget, the next fence is above all that were given before."""
    holds = [await granted(store, ME)]
    await store.release(ME, holds[-1])
    holds.append(await granted(store, ME))
    await store.mark_unknown(ME, holds[-1], Doubt())
    holds.append(await granted(store, ME, ask(reclaim=holds[-1].fence)))
    await harness.lose(ME)
    holds.append(await granted(store, ME))
    await store.complete(ME, holds[-1], completion())
    await harness.advance(8 * DAY + 1)
    holds.append(await granted(store, ME))

    growing = [before.fence < after.fence for before, after in itertools.pairwise(holds)]
    assert [True] * 4 == growing
    assert 5 == len({(hold.fence, hold.owner) for hold in holds})


# Time


@pytest.mark.parametrize("seconds", [16, 100 * YEAR])
async def test_a_lease_that_is_over_makes_unknown_never_absent(harness: Harness, store: Store, seconds: int) -> None:
    """The holder may have sent its request: whoever asks after the lease finds `unknown`, also a hundred years later."""
    hold = await granted(store, ME)
    await harness.advance(seconds)

    seen = await store.read(ME)
    record = await found(store, ME)

    assert seen is not None
    assert (Phase.UNKNOWN, hold.fence, hold.owner, None, None) == (
        record.phase,
        record.fence,
        record.owner,
        record.expires_at,
        record.forget_at,
    )
    assert Phase.UNKNOWN is seen.phase
    assert record == await store.read(ME)


async def test_what_is_unknown_by_its_lease_is_so_since_its_end(harness: Harness, store: Store) -> None:
    """However late anyone looks, the outcome is unknown from the end of the lease on; and a claim notes just that."""
    await granted(store, ME)
    await harness.advance(100 * DAY)

    seen = [await store.read(ME), await found(store, ME), await store.read(ME)]

    assert [(Phase.UNKNOWN, True)] * 3 == [
        (record.phase, record.settled_at == record.lease_until == record.claimed_at + LEASE) for record in seen if record
    ]


async def test_an_unknown_record_never_expires(harness: Harness, store: Store) -> None:
    """What only the upstream knows stays, with the answer that it came with, until someone settles it."""
    hold = await granted(store, ME)
    await store.mark_unknown(ME, hold, Doubt(502, answer=ANSWER))
    await harness.advance(100 * YEAR)

    record = await found(store, ME)

    assert (Phase.UNKNOWN, 502, ANSWER) == (record.phase, record.status, record.answer)


async def test_a_completed_record_expires_and_then_goes(harness: Harness, store: Store) -> None:
    """At the end of its retention the answer goes and the status stays; at the end of its mark nothing is left."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())
    seen = []
    for seconds in (DAY - 10, 20, 7 * DAY - 30, 30):
        await harness.advance(seconds)
        record = await store.read(ME)
        seen.append(record and (record.phase, record.status, record.answer))

    expired = (Phase.EXPIRED, 201, None)
    assert [(Phase.COMPLETED, 201, ANSWER), expired, expired, None] == seen


async def test_a_claim_finds_an_expired_record_and_takes_a_forgotten_one(harness: Harness, store: Store) -> None:
    """Within the mark a claim is told that it happened; after it the key is free, without a trace of the first answer."""
    hold = await granted(store, ME)
    await store.complete(ME, hold, completion())
    await harness.advance(DAY + 1)
    record = await found(store, ME)
    assert (Phase.EXPIRED, 201, None) == (record.phase, record.status, record.answer)
    await harness.advance(7 * DAY)

    again = await granted(store, ME)

    record = await found(store, ME)
    assert (Phase.IN_FLIGHT, again.fence, None, None, None) == (
        record.phase,
        record.fence,
        record.settled_at,
        record.forget_at,
        record.status,
    )


# Renewal


async def test_a_renewed_lease_lives_on(harness: Harness, store: Store) -> None:
    """A heartbeat counts from now: twice ten seconds do not end a lease of fifteen that was renewed in between."""
    hold = await granted(store, ME)
    await harness.advance(10)
    assert [True] == list(await store.renew([(ME, hold)], LEASE))
    await harness.advance(10)

    assert [Phase.IN_FLIGHT] == await phases(store, ME)
    await harness.advance(6)
    assert [Phase.UNKNOWN] == await phases(store, ME)


async def test_many_leases_are_renewed_at_once(store: Store) -> None:
    """One call has one answer for each hold, in order: true in flight; false completed, unknown, lost, and of another fence."""
    ids = [identity(name) for name in ("alive", "completed", "unknown", "lost", "reclaimed", "alive too")]
    holds = [await granted(store, each) for each in ids]
    await store.complete(ids[1], holds[1], completion())
    await store.mark_unknown(ids[2], holds[2], Doubt())
    await store.release(ids[3], holds[3])
    await store.mark_unknown(ids[4], holds[4], Doubt())
    taken = await granted(store, ids[4], ask(reclaim=holds[4].fence))

    renewed = await store.renew([*zip(ids, holds, strict=True), (ids[4], taken)], 2 * LEASE)

    assert [True, False, False, False, False, True, True] == list(renewed)
    assert [Phase.IN_FLIGHT, Phase.COMPLETED, Phase.UNKNOWN, None, Phase.IN_FLIGHT, Phase.IN_FLIGHT] == await phases(store, *ids)


async def test_nothing_is_renewed_by_an_empty_call(store: Store) -> None:
    """A heartbeat with nothing in flight has no answers."""
    assert [] == list(await store.renew([], LEASE))


# Reading


async def test_a_read_makes_no_record(harness: Harness, store: Store) -> None:
    """Reading an absent record makes none: the next claim is granted."""
    assert None is await store.read(ME)
    await granted(store, ME)


async def test_a_lease_that_is_over_stays_over(harness: Harness, store: Store) -> None:
    """A holder that renews too late is told so, whether or not anyone has looked, and may still complete."""
    hold = await granted(store, ME)
    await harness.advance(16)

    assert [False] == list(await store.renew([(ME, hold)], LEASE))
    assert [Phase.UNKNOWN] == await phases(store, ME)
    assert Settled.WRITTEN is await store.complete(ME, hold, completion())


async def test_a_claim_that_is_read_back_lasts_from_the_last_asking(harness: Harness, store: Store) -> None:
    """Asked again by its owner, a claim has its whole lease from then on: the asker counts it so."""
    asked = ask()
    first = await granted(store, ME, asked)
    await harness.advance(10)
    again = await granted(store, ME, asked)
    await harness.advance(10)

    assert (first.fence, first.owner) == (again.fence, again.owner)
    assert [Phase.IN_FLIGHT] == await phases(store, ME)
