"""The contract of all stores' journals: what store.base_journal and core.journal say, on every store there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import pytest

from idemproxy.core import journal as steps
from idemproxy.core.journal import ABSENT, Conflict, Journal, Memory, Note, Saved, SaveResult, WorkflowIdentity
from idemproxy.core.record import MICROSECONDS
from idemproxy.store.base import Store
from tests.store.harness import Harness
from tests.store.steps import granted, identity, listed

WORKFLOW: Final = WorkflowIdentity("shared", "ab12")
HOUR: Final = 3600
KEPT: Final = HOUR * MICROSECONDS

Asked: TypeAlias = tuple[bytes, int | None, int]
"""What is saved, the version that is expected, and for how long to keep it."""

Moment: TypeAlias = Callable[[Journal | None, int], tuple[Journal | None, SaveResult | None]]
"""What a call does to a journal at a time: a step of core.journal with its arguments in it."""


def note(name: str, kept: int = KEPT, action: str | None = None) -> Note:
    """A step whose record has a key of this name."""
    return Note(identity(name), "seats", kept, name, action)


async def read(store: Store, workflow: WorkflowIdentity = WORKFLOW) -> Journal:
    """A journal that must be there."""
    found = await store.journals.journal(workflow)
    assert found is not None
    return found[0]


async def noted(store: Store, workflow: WorkflowIdentity = WORKFLOW) -> list[Note]:
    """Its notes."""
    return [entry.note for entry in (await read(store, workflow)).entries]


# The pure steps as the oracle


async def seen(store: Store) -> tuple[Journal | None, int]:
    """The journal, and a time that is not before it: that at which it was read, or else that of a journal made for that."""
    found = await store.journals.journal(WORKFLOW)
    if found is not None:
        return found
    clock = WorkflowIdentity("shared", "clock")
    await store.journals.note(clock, note("tick"))
    ticked = await store.journals.journal(clock)
    assert ticked is not None
    return None, ticked[1]


def calls(seed: int) -> Iterator[tuple[str, int]]:
    """Forty calls of any kind, each with a number that says with what."""
    draw = random.Random(seed)  # noqa: S311 -- the same histories in every run
    return ((draw.choice(("note", "save", "save again", "save any")), draw.randrange(12)) for _ in range(40))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_call_does_what_the_pure_step_does_at_some_moment_of_it(store: Store, seed: int) -> None:
    """After any history the store holds, and has told, what core.journal makes of it at a time during the call."""
    before, since = await seen(store)
    asked: Asked = (b"", 7, KEPT)
    for kind, number in calls(seed):
        told: SaveResult | None = None
        if kind == "note":
            step = note(f"step {number % 5}", KEPT + number * MICROSECONDS, ("hold seat", None)[number % 2])
            await store.journals.note(WORKFLOW, step)
            moment: Moment = partial(noting, step)
        else:
            version = before.memory.version if before and before.memory else ABSENT
            if kind != "save again":
                expected = None if kind == "save any" else (version, version, version + 1, ABSENT)[number % 4]
                asked = (b"%d" % (number % 3), expected, KEPT + (11 - number) * MICROSECONDS)
            told = await store.journals.save(WORKFLOW, *asked)
            moment = partial(saving, asked)

        after, until = await seen(store)

        assert (after, told) in [moment(before, at) for at in moments(after, since, until)]
        before, since = after, until


def noting(step: Note, before: Journal | None, now: int) -> tuple[Journal, None]:
    """What a note does."""
    return steps.noted(before, step, now), None


def saving(asked: Asked, before: Journal | None, now: int) -> tuple[Journal | None, SaveResult]:
    """What a save does."""
    return steps.saved(before, *asked, now)


def moments(after: Journal | None, since: int, until: int) -> list[int]:
    """The times, from `since` to `until`, that a call may have had which left this: each that it may have written down."""
    times = {since}
    if after is not None:
        times |= {after.forget_at - KEPT - more * MICROSECONDS for more in range(12)}
        times |= {entry.at for entry in after.entries[-1:]} | ({after.memory.version} if after.memory else set())
    return [at for at in times if since <= at <= until]


# Notes


async def test_steps_are_told_as_they_were_noted(store: Store) -> None:
    """Whatever an agent calls its steps and acts, in any script, with quotes or without a name at all, comes back as it was."""
    told = [
        note("1", action="hold seat"),
        note('пересадка "Осло"', action="座席を確保する"),
        note("\U0001f4b3\x00\n", action="\\u0031 / {} []"),
        Note(identity("no name", scope="tenant", upstream="mail"), "mail", KEPT),
    ]
    for each in told:
        await store.journals.note(WORKFLOW, each)

    assert told == await noted(store)


async def test_a_step_that_is_noted_again_stays_where_it_was(store: Store) -> None:
    """With its place, its time and its words; only its record is known for the longer of the two times."""
    other = note("other")
    await store.journals.note(WORKFLOW, note("step", KEPT, "first"))
    await store.journals.note(WORKFLOW, other)
    before = (await read(store)).entries

    for kept in (2 * KEPT, KEPT):
        await store.journals.note(WORKFLOW, replace(note("step", kept, "second"), route="another"))

    longer = replace(before[0], note=note("step", 2 * KEPT, "first"))
    assert (longer, before[1]) == (await read(store)).entries


async def test_a_step_is_dated_by_the_stores_clock(store: Store) -> None:
    """When a step was begun is not after the claim that follows it, nor after the time that is told with the journal."""
    first = await granted(store, identity("first"))
    await store.journals.note(WORKFLOW, note("step"))
    second = await granted(store, identity("second"))

    found = await store.journals.journal(WORKFLOW)

    assert found is not None
    journal, now = found
    at = journal.entries[0].at
    assert sorted([first.claimed_at, at, second.claimed_at, now]) == [first.claimed_at, at, second.claimed_at, now]
    assert at + KEPT == journal.forget_at


async def test_concurrent_notes_are_all_kept_once(harness: Harness) -> None:
    """Of notes that arrive together, in two processes, each step is kept, and once, however often it was told."""
    stores = [await harness.open(), await harness.open()]
    told = [note(f"step {number % 30}") for number in range(60)]

    await asyncio.gather(*[stores[place % 2].journals.note(WORKFLOW, each) for place, each in enumerate(told)])

    kept = await noted(stores[0])
    assert sorted(told[:30], key=str) == sorted(kept, key=str)
    assert kept == await noted(stores[1])


async def test_workflows_are_apart(store: Store) -> None:
    """The same id in another scope, and another id in the same, have journals of their own; a record may be a step of both."""
    apart = [WORKFLOW, replace(WORKFLOW, scope="tenant"), replace(WORKFLOW, id_hash="cd34")]
    for place, each in enumerate(apart):
        await store.journals.note(each, note("shared step"))
        await store.journals.note(each, note(f"step {place}"))
    await store.journals.save(apart[0], b"1", ABSENT, KEPT)

    assert [[note("shared step"), note(f"step {place}")] for place in range(3)] == [await noted(store, each) for each in apart]
    assert [b"1", None, None] == [memory and memory.content for each in apart for memory in [(await read(store, each)).memory]]


async def test_a_thousand_steps_and_more_are_read_in_one_call(store: Store) -> None:
    """A long journal is whole, and in the order in which its steps were noted, also those that were told together."""
    told = [note(f"step {number}") for number in range(1001)]
    await asyncio.gather(*[store.journals.note(WORKFLOW, each) for each in told])

    assert told == await noted(store)


async def test_a_journal_is_no_record(store: Store) -> None:
    """Records are listed without journals, and what is done to one is not done to the other."""
    await granted(store, identity("step"))
    await store.journals.note(WORKFLOW, note("step"))
    await store.journals.save(WORKFLOW, b"1", ABSENT, KEPT)

    assert [identity("step")] == list(await listed(store))
    assert None is await store.read(identity("other"))


# Memory


async def test_of_concurrent_saves_that_expect_one_version_one_is_kept(harness: Harness) -> None:
    """Of agents that all saw the same memory, in two processes, one is told that its own is kept, the others which is."""
    stores = [await harness.open(), await harness.open()]
    seen = await stores[0].journals.save(WORKFLOW, b"seen", ABSENT, KEPT)
    contents = [b"%d" % number for number in range(40)]

    results = await asyncio.gather(
        *[stores[place % 2].journals.save(WORKFLOW, each, seen.version, KEPT) for place, each in enumerate(contents)]
    )

    won = [(each, result) for each, result in zip(contents, results, strict=True) if isinstance(result, Saved)]
    ((content, saved),) = won
    assert Memory(content, saved.version, seen.version) == (await read(stores[1])).memory
    assert [Conflict(saved.version)] * 39 == [result for result in results if isinstance(result, Conflict)]


async def test_a_save_that_is_asked_again_elsewhere_is_the_same_save(harness: Harness) -> None:
    """Its answer lost, it may be asked again through another process: the version is the first one's."""
    first, second = await harness.open(), await harness.open()
    result = await first.journals.save(WORKFLOW, b"new", ABSENT, KEPT)

    assert [result, result] == [await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT) for store in (first, second)]


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff\r\n", '{"straße": "東京"}'.encode(), b"0123456789abcdef" * 65_536],
    ids=["none", "bytes", "text", "1 MiB"],
)
async def test_a_memory_is_kept_byte_for_byte(store: Store, content: bytes) -> None:
    """Whatever the agent keeps, up to a mebibyte of it, and known again when it is saved again."""
    await store.journals.note(WORKFLOW, note("step"))
    result = await store.journals.save(WORKFLOW, content, ABSENT, KEPT)
    await store.journals.note(WORKFLOW, note("another"))

    assert result == await store.journals.save(WORKFLOW, content, ABSENT, KEPT)
    assert Memory(content, result.version, ABSENT) == (await read(store)).memory


async def test_a_memory_without_a_step_is_a_journal(store: Store) -> None:
    """An agent may save before its first call; what is expected of what is not there makes nothing."""
    refused = await store.journals.save(WORKFLOW, b"new", 17, KEPT)
    nothing = await store.journals.journal(WORKFLOW)

    result = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)

    assert (Conflict(ABSENT), None) == (refused, nothing)
    assert Journal((), Memory(b"new", result.version, ABSENT), result.version + KEPT) == await read(store)


# Time


async def test_a_journal_is_kept_for_as_long_as_its_last_step_asks_for(harness: Harness, store: Store) -> None:
    """Every note and every save prolongs the whole; when the last has had its time, the whole goes at once."""
    sizes = []
    await store.journals.note(WORKFLOW, note("first", KEPT))
    await harness.advance(HOUR - 60)
    await store.journals.note(WORKFLOW, note("second", KEPT))
    await harness.advance(HOUR - 60)
    sizes.append(len(await noted(store)))
    await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)
    await harness.advance(HOUR - 60)
    sizes.append(len(await noted(store)))
    await store.journals.note(WORKFLOW, note("third", 0))
    await harness.advance(30)
    sizes.append(len(await noted(store)))
    await harness.advance(60)

    assert [2, 2, 3] == sizes
    assert None is await store.journals.journal(WORKFLOW)


async def test_nothing_of_a_journal_that_has_gone_comes_back(harness: Harness, store: Store) -> None:
    """What is noted after it begins anew, and what is saved has a version that was never given before."""
    await store.journals.note(WORKFLOW, note("old"))
    old = await store.journals.save(WORKFLOW, b"old", ABSENT, KEPT)
    await harness.advance(HOUR + 60)

    await store.journals.note(WORKFLOW, note("new"))
    begun = await read(store)
    stale = await store.journals.save(WORKFLOW, b"new", old.version, KEPT)
    new = await store.journals.save(WORKFLOW, b"new", ABSENT, KEPT)

    assert ([note("new")], None) == ([entry.note for entry in begun.entries], begun.memory)
    assert Conflict(ABSENT) == stale
    assert new.version > old.version


async def test_a_memory_that_has_gone_may_be_saved_anew(harness: Harness, store: Store) -> None:
    """Without any note, too: the first save after the end is a first save."""
    old = await store.journals.save(WORKFLOW, b"old", ABSENT, KEPT)
    await harness.advance(HOUR + 60)

    new = await store.journals.save(WORKFLOW, b"old", ABSENT, KEPT)

    assert isinstance(new, Saved)
    assert new.version > old.version
    assert Memory(b"old", new.version, ABSENT) == (await read(store)).memory
