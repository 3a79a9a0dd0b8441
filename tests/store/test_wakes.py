"""The contract of all stores for those who wait, and for those who leave."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from idemproxy.core.record import MICROSECONDS, Phase
from idemproxy.core.transition import Found, Granted, Settled
from idemproxy.store.base import Store
from tests.store.harness import Harness
from tests.store.steps import (
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
NEVER = 3600.0
"""Seconds: a wait that ends by itself is a hang, which ends the test."""


# Waking


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another process"])
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_a_settlement_wakes_those_who_watch(harness: Harness, store: Store, settlement: str, *, elsewhere: bool) -> None:
    """Every waiter of a record in flight returns at once when it is settled, in the holder's process and in another."""
    hold = await granted(store, ME)
    waiting = await harness.open() if elsewhere else store
    with ExitStack() as watched:
        wakes = [watched.enter_context(waiting.watch(ME)) for _ in range(3)]
        assert isinstance(await waiting.claim(ME, ask(), watched=True), Found)
        waits = [asyncio.create_task(wake.wait(60)) for wake in wakes]

        await SETTLEMENTS[settlement](store, ME, hold)
        _, late = await asyncio.wait(waits, timeout=WITHIN)

    assert set() == late


async def test_a_wake_before_the_wait_is_not_missed(harness: Harness, store: Store) -> None:
    """A settlement between `watch` and `wait` ends the wait at once."""
    hold = await granted(store, ME)
    with store.watch(ME) as wake:
        await store.claim(ME, ask(), watched=True)
        await store.complete(ME, hold, completion())

        async with asyncio.timeout(WITHIN):
            await wake.wait(60)


async def test_a_wait_ends_by_itself(store: Store) -> None:
    """Without a settlement the wait returns after its time, without an error."""
    await granted(store, ME)
    with store.watch(ME) as wake:
        async with asyncio.timeout(WITHIN):
            await wake.wait(0.01)


async def test_a_settlement_wakes_no_one_else(harness: Harness, store: Store) -> None:
    """Who watches another record of the same data sleeps on, while those who watch the settled ones wake, one after the other."""
    other, last = identity("other"), identity("last")
    holds = {each: await granted(store, each) for each in (other, ME, last)}
    waiting = await harness.open()
    with ExitStack() as watched:
        wakes = {each: watched.enter_context(waiting.watch(each)) for each in holds}
        for each in holds:
            await waiting.claim(each, ask(), watched=True)
        waits = {each: asyncio.create_task(wake.wait(NEVER)) for each, wake in wakes.items()}

        for each in (ME, last):  # what one settlement tells arrives before what the next one does
            await store.release(each, holds[each])
            await waits[each]

        assert not waits[other].done()
        await store.release(other, holds[other])
        await waits[other]


# Callers that leave


async def test_a_caller_that_leaves_tears_nothing(store: Store) -> None:
    """Cancelling callers in the middle neither harms their neighbours nor half does what they asked."""
    ids = [identity(f"key-{number}") for number in range(20)]
    tasks = [asyncio.create_task(store.claim(each, ask(lease=MICROSECONDS * 600))) for each in ids]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [Granted] * 10 == [type(result) for result in results[1::2]]
    assert [Phase.IN_FLIGHT] * 10 == await phases(store, *ids[1::2])
    assert {None, Phase.IN_FLIGHT} >= set(await phases(store, *ids[::2]))


async def test_two_openings_see_each_others_writes_at_once(harness: Harness) -> None:
    """What one process was told is written is what the next call of another finds."""
    first, second = await harness.open(), await harness.open()
    hold = await granted(first, ME)
    assert Phase.IN_FLIGHT is (await found(second, ME)).phase

    assert Settled.WRITTEN is await second.complete(ME, hold, completion())
    assert Phase.COMPLETED is (await found(first, ME)).phase
