"""The contract of all stores for what persons do: they resolve and forget by the fence that they saw, and leave a trail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from idemproxy.core.record import MICROSECONDS, Identity, Phase, Record, Source
from idemproxy.core.transition import Act, Acted, Completion, Doubt, Found, Hold, Settled, Verb
from idemproxy.store.base import AUDIT_KEPT, Store
from tests.store.harness import Harness
from tests.store.steps import (
    ANSWER,
    EXPIRED_MARK,
    LEASE,
    RETENTION,
    SETTLEMENTS,
    WITHIN,
    ask,
    completion,
    found,
    granted,
    identity,
    phases,
)

ME = identity()
DAY = 86_400
WHO, WHY = "ada@example.com", "the bank's statement shows one charge"
RESOLUTION = Completion(201, RETENTION, EXPIRED_MARK, Source.RESOLVED, ANSWER)

ACTS: dict[Verb, Callable[[Store, Identity, int], Awaitable[Acted]]] = {
    Verb.RESOLVE_COMPLETED: lambda store, of, fence: store.resolve(of, fence, RESOLUTION, WHO, WHY),
    Verb.RESOLVE_NOT_EXECUTED: lambda store, of, fence: store.resolve(of, fence, None, WHO, WHY),
    Verb.FORGET: lambda store, of, fence: store.forget(of, fence, WHO, WHY),
}


async def brought(harness: Harness, store: Store, state: str, of: Identity = ME) -> Hold:
    """A record in a state; the hold of its claim."""
    hold = await granted(store, of)
    match state:
        case "in flight":
            pass
        case "lease over":
            await harness.advance(16)
        case "unknown":
            await store.mark_unknown(of, hold, Doubt(500, answer=b"an error"))
        case "completed":
            await store.complete(of, hold, completion())
        case "expired":
            await store.complete(of, hold, completion())
            await harness.advance(DAY + 1)
        case "absent":
            await store.release(of, hold)
        case _:
            raise AssertionError(state)
    return hold


# Resolved as completed


@pytest.mark.parametrize("state", ["unknown", "lease over"])
@pytest.mark.parametrize("answer", [ANSWER, b"", None], ids=["an answer", "an empty one", "none"])
async def test_what_was_resolved_is_replayed(harness: Harness, store: Store, state: str, answer: bytes | None) -> None:
    """Every process finds the status and answer that the person gave, as resolved, under a new fence that nobody holds."""
    hold = await brought(harness, store, state)
    before = await store.read(ME)
    assert before is not None

    acted = await store.resolve(ME, hold.fence, replace(RESOLUTION, answer=answer), WHO, WHY)

    record = await found(await harness.open(), ME)
    assert Acted.DONE is acted
    assert record.fence > hold.fence
    assert record.settled_at is not None
    assert record == Record(
        phase=Phase.COMPLETED,
        fingerprint=hold.fingerprint,
        fence=record.fence,
        owner="",
        route=hold.route,
        claimed_at=before.claimed_at,
        lease_until=before.lease_until,
        settled_at=record.settled_at,
        expires_at=record.settled_at + RETENTION,
        forget_at=record.settled_at + RETENTION + EXPIRED_MARK,
        status=201,
        source=Source.RESOLVED,
        answer=answer,
    )


async def test_a_resolved_record_expires_as_any_completed_one(harness: Harness, store: Store) -> None:
    """Its answer goes after the retention that was given, and its mark after that."""
    hold = await brought(harness, store, "unknown")
    await store.resolve(ME, hold.fence, RESOLUTION, WHO, WHY)
    seen = []
    for seconds in (DAY - 10, 20, 7 * DAY):
        await harness.advance(seconds)
        seen += await phases(store, ME)

    assert [Phase.COMPLETED, Phase.EXPIRED, None] == seen


@pytest.mark.parametrize("state", ["unknown", "lease over"])
async def test_a_holder_that_comes_after_a_resolution_is_too_late(harness: Harness, store: Store, state: str) -> None:
    """Whatever the first holder still writes is stale, and what the person said stands."""
    hold = await brought(harness, store, state)
    await store.resolve(ME, hold.fence, RESOLUTION, WHO, WHY)
    before = await store.read(ME)

    assert [Settled.STALE] * 3 == [await settle(store, ME, hold) for settle in SETTLEMENTS.values()]
    assert [False] == list(await store.renew([(ME, hold)], LEASE))
    assert before == await store.read(ME)


# Resolved as not executed, and forgotten


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        (Verb.RESOLVE_NOT_EXECUTED, "unknown"),
        (Verb.RESOLVE_NOT_EXECUTED, "lease over"),
        (Verb.FORGET, "unknown"),
        (Verb.FORGET, "lease over"),
        (Verb.FORGET, "completed"),
        (Verb.FORGET, "expired"),
    ],
)
async def test_a_key_that_was_freed_is_new(harness: Harness, store: Store, verb: Verb, state: str) -> None:
    """The record is gone, for every process; the next claim is granted, above the old fence, without a trace of the old run."""
    hold = await brought(harness, store, state)

    acted = await ACTS[verb](store, ME, hold.fence)

    other = await harness.open()
    assert [None] == await phases(other, ME)
    again = await granted(other, ME)
    assert Acted.DONE is acted
    assert again.fence > hold.fence
    assert (await found(store, ME)) == Record(
        Phase.IN_FLIGHT, "v1:same", again.fence, again.owner, "charges", again.claimed_at, again.claimed_at + LEASE
    )


@pytest.mark.parametrize("verb", [Verb.RESOLVE_NOT_EXECUTED, Verb.FORGET])
async def test_a_holder_that_completes_a_freed_key_writes_it_anew(harness: Harness, store: Store, verb: Verb) -> None:
    """The effect is a fact, whatever a person said of it: the holder is told that the record was gone."""
    hold = await brought(harness, store, "lease over")
    await ACTS[verb](store, ME, hold.fence)

    assert Settled.REWRITTEN is await store.complete(ME, hold, completion())
    assert ANSWER == (await found(store, ME)).answer


@pytest.mark.parametrize("verb", [Verb.RESOLVE_NOT_EXECUTED, Verb.FORGET])
async def test_a_holder_whose_freed_key_was_claimed_is_too_late(harness: Harness, store: Store, verb: Verb) -> None:
    """Once somebody else was granted the key, the first holder's writes change nothing."""
    hold = await brought(harness, store, "lease over")
    await ACTS[verb](store, ME, hold.fence)
    await granted(store, ME)

    assert [Settled.STALE] * 3 == [await settle(store, ME, hold) for settle in SETTLEMENTS.values()]
    assert [Phase.IN_FLIGHT] == await phases(store, ME)


# What is refused


REFUSALS = [
    *((verb, "absent", 0, Acted.ABSENT) for verb in Verb),
    *((verb, "unknown", 1, Acted.STALE) for verb in Verb),
    *((verb, "unknown", -1, Acted.STALE) for verb in Verb),
    *((verb, "lease over", 1, Acted.STALE) for verb in Verb),
    *((verb, "in flight", 0, Acted.WRONG_PHASE) for verb in Verb),
    *((verb, "in flight", 1, Acted.STALE) for verb in Verb),
    *((verb, "completed", 0, Acted.WRONG_PHASE) for verb in Verb if verb is not Verb.FORGET),
    *((verb, "expired", 0, Acted.WRONG_PHASE) for verb in Verb if verb is not Verb.FORGET),
    (Verb.FORGET, "completed", 1, Acted.STALE),
    (Verb.FORGET, "expired", -1, Acted.STALE),
]


@pytest.mark.parametrize(("verb", "state", "off", "expected"), REFUSALS)
async def test_what_is_refused_changes_nothing(
    harness: Harness, store: Store, verb: Verb, state: str, off: int, expected: Acted
) -> None:
    """An act on another fence, in a wrong phase, or on nothing is refused as such, and neither writes nor leaves a trail."""
    hold = await brought(harness, store, state)
    before = await store.read(ME)

    assert expected is await ACTS[verb](store, ME, hold.fence + off)
    assert before == await store.read(ME)
    assert [] == list(await store.audit(ME))


@pytest.mark.parametrize("verb", Verb)
async def test_one_of_many_concurrent_acts_is_done(harness: Harness, store: Store, verb: Verb) -> None:
    """Of persons who act on the same fence at once, in two processes, one is told that it is done; the trail has one entry."""
    hold = await brought(harness, store, "unknown")
    stores = [store, await harness.open()]

    acted = await asyncio.gather(*[ACTS[verb](stores[number % 2], ME, hold.fence) for number in range(10)])

    late = Acted.STALE if verb is Verb.RESOLVE_COMPLETED else Acted.ABSENT
    assert sorted([Acted.DONE] + [late] * 9) == sorted(acted)
    assert [verb] == [act.verb for act in await store.audit(ME)]


# The audit trail


async def test_the_trail_tells_who_did_what_and_why_in_order(harness: Harness, store: Store) -> None:
    """Each act is noted with the fence and the phase that it found; every process reads all of them, also of a gone record."""
    holds = [await brought(harness, store, "unknown")]
    await store.resolve(ME, holds[0].fence, None, "ada", "nothing arrived")
    holds.append(await brought(harness, store, "lease over"))
    await store.resolve(ME, holds[1].fence, RESOLUTION, "grace", "it arrived")
    resolved = await found(store, ME)
    await store.forget(ME, resolved.fence, "ada", "test data")

    trail = await (await harness.open()).audit(ME)

    assert [None] == await phases(store, ME)
    assert [
        Act(Verb.RESOLVE_NOT_EXECUTED, "ada", "nothing arrived", holds[0].fence, Phase.UNKNOWN, trail[0].at),
        Act(Verb.RESOLVE_COMPLETED, "grace", "it arrived", holds[1].fence, Phase.UNKNOWN, resolved.settled_at or 0),
        Act(Verb.FORGET, "ada", "test data", resolved.fence, Phase.COMPLETED, trail[2].at),
    ] == list(trail)
    assert holds[0].fence < trail[0].at
    assert trail[1].at < trail[2].at


@pytest.mark.parametrize("text", ["", 'a "quoted" \\ word', "line\r\nbreak\tand \x00 zero", "Ω é 漢 😀", "x" * 10_000])
async def test_the_trail_keeps_every_character(harness: Harness, store: Store, text: str) -> None:
    """Who and why are read as they were written."""
    hold = await brought(harness, store, "unknown")

    await store.forget(ME, hold.fence, text, text[::-1])

    assert [(text, text[::-1])] == [(act.who, act.why) for act in await store.audit(ME)]


async def test_each_record_has_its_own_trail(harness: Harness, store: Store) -> None:
    """What was done to one key says nothing of another, nor of the same key in another scope."""
    others = [identity("other"), identity(scope="other"), identity(upstream="airline")]
    hold = await brought(harness, store, "unknown")
    await store.forget(ME, hold.fence, WHO, WHY)

    assert [1, 0, 0, 0] == [len(await store.audit(each)) for each in (ME, *others)]


async def test_the_trail_is_kept_for_a_time_after_the_last_act(harness: Harness, store: Store) -> None:
    """A new act prolongs the whole trail; when no act has come for AUDIT_KEPT, all of it is gone, and a new one may begin."""
    kept = AUDIT_KEPT / MICROSECONDS
    lengths = []
    for seconds in (0, kept - 60, kept - 60):
        await harness.advance(seconds)
        hold = await brought(harness, store, "unknown")
        await store.forget(ME, hold.fence, WHO, WHY)
        lengths.append(len(await store.audit(ME)))
    for seconds in (kept - 60, 120):
        await harness.advance(seconds)
        lengths.append(len(await store.audit(ME)))
    hold = await brought(harness, store, "unknown")
    await store.forget(ME, hold.fence, WHO, WHY)
    lengths.append(len(await store.audit(ME)))

    assert [1, 2, 3, 3, 0, 1] == lengths


# Waking


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another process"])
@pytest.mark.parametrize("verb", Verb)
async def test_an_act_wakes_those_who_watch(harness: Harness, store: Store, verb: Verb, *, elsewhere: bool) -> None:
    """Who began to wait while the record was in flight returns at once when a person has decided, here and elsewhere."""
    hold = await granted(store, ME)
    waiting = await harness.open() if elsewhere else store
    with ExitStack() as watched:
        wakes = [watched.enter_context(waiting.watch(ME)) for _ in range(3)]
        assert isinstance(await waiting.claim(ME, ask(), watched=True), Found)
        waits = [asyncio.create_task(wake.wait(60)) for wake in wakes]
        await harness.advance(16)

        assert Acted.DONE is await ACTS[verb](store, ME, hold.fence)
        _, late = await asyncio.wait(waits, timeout=WITHIN)

    assert set() == late
