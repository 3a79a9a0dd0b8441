"""The contract of all stores for lists: pages that pass over nothing, by the phase that time has made, and without answers."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.core.record import MICROSECONDS, Identity, Phase, Source
from idemproxy.core.transition import Doubt
from idemproxy.store.base import Store
from idemproxy.store.sqlite_list import SCAN_ROWS
from tests.store.harness import Harness, SqliteHarness
from tests.store.redis_steps import opened
from tests.store.steps import ANSWER, ask, completion, granted, identity, listed, pages

DAY = 86_400
LONG = 365 * DAY * MICROSECONDS


async def test_a_store_without_records_lists_none(store: Store) -> None:
    """There is nothing to list, and it has an end."""
    assert {} == await listed(store)


@pytest.mark.parametrize("limit", [1, 7, 25, 100])
async def test_pages_hold_every_record_once(store: Store, limit: int) -> None:
    """Whatever the size of a page, going on from cursor to cursor meets each record, and while nothing changes, once."""
    ids = [identity(f"key-{number}") for number in range(25)]
    for each in ids:
        await granted(store, each)

    seen = Counter(of for page in await pages(store, limit=limit) for of, _ in page.records)

    assert Counter(ids) == seen


async def test_records_that_stay_are_listed_while_others_come_and_go(store: Store) -> None:
    """Between any two pages records are added, settled and removed; those that were there throughout are all listed."""
    stay = [identity(f"stays-{number}") for number in range(40)]
    going = [identity(f"goes-{number}") for number in range(40)]
    holds = {}
    for pair in zip(stay, going, strict=True):
        for each in pair:
            holds[each] = await granted(store, each)

    seen: set[Identity] = set()
    page = await store.list(None, 3, "")
    for number in range(1000):
        seen |= {of for of, _ in page.records}
        if not page.cursor:
            break
        await granted(store, identity(f"comes-{number}"))
        if number < len(stay):
            await store.release(going[number], holds[going[number]])
            await store.complete(stay[number], holds[stay[number]], completion())
        page = await store.list(None, 3, page.cursor)

    assert "" == page.cursor
    assert set() == set(stay) - seen


async def test_a_list_by_phase_sees_what_time_has_made(harness: Harness, store: Store) -> None:
    """In flight past the lease is listed as unknown, completed past its retention as expired, and past its mark not at all."""
    names = ("forgotten", "expired", "lease over", "unknown", "completed", "resolved", "in flight")
    ids = {name: identity(name) for name in names}
    await store.complete(ids["forgotten"], await granted(store, ids["forgotten"]), completion())
    await harness.advance(7 * DAY)
    await store.complete(ids["expired"], await granted(store, ids["expired"]), completion())
    await granted(store, ids["lease over"])
    await granted(store, ids["in flight"], ask(lease=LONG))
    await harness.advance(DAY + 60)
    await store.mark_unknown(ids["unknown"], await granted(store, ids["unknown"]), Doubt(500, answer=ANSWER))
    await store.complete(ids["completed"], await granted(store, ids["completed"]), completion())
    hold = await granted(store, ids["resolved"])
    await store.mark_unknown(ids["resolved"], hold, Doubt())
    await store.resolve(ids["resolved"], hold.fence, replace(completion(), source=Source.RESOLVED), "ada", "it arrived")

    by_phase = {phase: {of.key_hash for of in await listed(store, phase, limit=2)} for phase in (*Phase, None)}

    assert {
        Phase.IN_FLIGHT: {"in flight"},
        Phase.COMPLETED: {"completed", "resolved"},
        Phase.UNKNOWN: {"lease over", "unknown"},
        Phase.EXPIRED: {"expired"},
        None: set(names) - {"forgotten"},
    } == by_phase


async def test_what_is_listed_is_what_is_read_but_without_answers(harness: Harness, store: Store) -> None:
    """Each record has all that a read of it tells, save the answer, however long that is."""
    names = ("lease over", "completed", "unknown", "in flight")
    ids = [identity(name, scope=f"scope of {name}", upstream="airline") for name in names]
    holds = [await granted(store, each, ask(lease=LONG) if each is ids[3] else ask()) for each in ids]
    await harness.advance(16)
    await store.complete(ids[1], holds[1], replace(completion(bytes(300_000)), source=Source.RECOVERED))
    await store.mark_unknown(ids[2], holds[2], Doubt(502, answer=ANSWER))

    found = await listed(store)

    records = {each: await store.read(each) for each in ids}
    assert {of: record and replace(record, answer=None) for of, record in records.items()} == found


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", " 1", "²", "1" * 40])
async def test_a_cursor_that_no_page_gave_is_refused(store: Store, cursor: str) -> None:
    """Text that is no cursor is named in a ValueError that says where cursors come from; the store works on."""
    with pytest.raises(ValueError, match="is not a cursor: begin with an empty one") as raised:
        await store.list(None, 10, cursor)

    assert repr(cursor) in str(raised.value)
    await store.check()


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_nothing_is_refused(store: Store, limit: int) -> None:
    """A page must have room for a record, or no list would end."""
    with pytest.raises(ValueError, match=f"a page of {limit} records cannot be listed"):
        await store.list(None, limit, "")


# SQLite


async def test_a_page_looks_at_few_rows(tmp_path: Path) -> None:
    """Where none of many rows is of the phase that is asked for, pages are empty, and their cursors go on."""
    harness = SqliteHarness(tmp_path)
    store = await harness.open()
    last = identity("the first of all")
    await store.mark_unknown(last, await granted(store, last), Doubt())
    with closing(harness.connect()) as connection, connection:
        connection.execute(
            "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO record (scope, upstream, key_hash, phase, fingerprint, fence, owner, route, claimed_at, lease_until, "
            "source, watchers) SELECT 'shared', 'payments', i, 'in_flight', '', i, '', '', 0, 1 << 60, 'answered', '' FROM n",
            (2 * SCAN_ROWS,),
        )

    turned = await pages(store, Phase.UNKNOWN)

    await harness.close()
    assert [[], [], [last]] == [[of for of, _ in page.records] for page in turned]


async def test_compacting_the_file_hides_nothing(tmp_path: Path) -> None:
    """VACUUM gives rows other numbers; a list that has begun before still meets every record."""
    harness = SqliteHarness(tmp_path)
    store = await harness.open()
    ids = [identity(f"key-{number}") for number in range(40)]
    holds = [await granted(store, each) for each in ids]
    for each, hold in zip(ids[:20], holds, strict=False):
        await store.release(each, hold)
    first = await store.list(None, 5, "")

    with closing(harness.connect()) as connection:
        connection.execute("VACUUM")

    seen = {of for of, _ in first.records}
    while first.cursor:
        first = await store.list(None, 5, first.cursor)
        seen |= {of for of, _ in first.records}
    await harness.close()
    assert set(ids[20:]) == seen


# Redis


async def test_only_records_under_the_prefix_are_listed(redis_url: str) -> None:
    """Signs that mean something in a pattern mean themselves; other prefixes, answers, trails and the probe are not listed."""
    prefix = "list [a-c]*?^\\:"
    async with (
        opened(redis_url, prefix) as store,
        opened(redis_url, "list b:") as other,
        opened(redis_url, f"x{prefix}") as longer,
    ):
        for name, each in {"mine": store, "other": other, "longer": longer}.items():
            await each.complete(identity(name), await granted(each, identity(name)), completion())
        gone = await granted(store, identity("gone"))
        await store.mark_unknown(identity("gone"), gone, Doubt())
        await store.forget(identity("gone"), gone.fence, "ada", "test data")
        await store.check()

        found = await listed(store)

    assert [identity("mine")] == list(found)
