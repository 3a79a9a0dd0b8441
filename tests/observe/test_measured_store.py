"""A measured store: the inner store's answers, and one report for each operation."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final, TypeAlias

import pytest

from idemproxy.core.journal import ABSENT, Conflict, Note, Saved, WorkflowIdentity
from idemproxy.core.record import Identity, Phase
from idemproxy.core.transition import Acted, Ask, Completion, Doubt, Found, Granted, Settled, Verb
from idemproxy.observe.metrics import STORE_OPERATIONS
from idemproxy.store.base import Store, StoreUnavailableError
from idemproxy.store.measured import MeasuredStore
from idemproxy.store.memory import MemoryStore

ONE, TWO, THREE = (Identity("shared", "payments", key) for key in ("1", "2", "3"))
WORKFLOW: Final = WorkflowIdentity("shared", "trip")
ASK: Final = Ask(fingerprint="v1:f", owner="nonce", route="charges", lease=15_000_000)
DONE: Final = Completion(status=201, retention=60_000_000, expired_mark=60_000_000, answer=b"packed")


Reports: TypeAlias = list[tuple[str, float, Exception | None]]


def measured(inner: Store, reports: Reports) -> Store:
    """A measured store that reports to a list, on a clock that moves half a second at each look."""
    ticks = count(0, 0.5)
    return MeasuredStore(inner, lambda *report: reports.append(report), lambda: next(ticks))


async def test_every_operation_gives_the_inner_answer_and_one_report() -> None:
    """Each operation is passed on with all its arguments and reported with its own duration, under the metrics' names."""
    reports: Reports = []
    inner = MemoryStore(lambda: 1_000_000)
    store = measured(inner, reports)

    await store.check()
    granted = [await store.claim(identity, ASK, watched=True) for identity in (ONE, TWO, THREE)]
    holds = [claimed.hold for claimed in granted if isinstance(claimed, Granted)]
    renewed = await store.renew([(ONE, holds[0])], 15_000_000)
    settled = [
        await store.complete(ONE, holds[0], DONE),
        await store.release(TWO, holds[1]),
        await store.mark_unknown(THREE, holds[2], Doubt(502, answer=b"error")),
    ]
    records = [await store.read(identity) for identity in (ONE, TWO, THREE)]
    again = await store.claim(ONE, ASK)
    page = await store.list(Phase.UNKNOWN, 10, "")
    acted = [
        await store.resolve(THREE, holds[2].fence, None, "ada", "nothing arrived"),
        await store.forget(ONE, holds[0].fence, "grace", "test data"),
    ]
    trails = [(act.verb, act.who, act.why) for identity in (THREE, ONE) for act in await store.audit(identity)]
    journals, kept = store.journals, 60_000_000
    await journals.note(WORKFLOW, Note(ONE, "charges", kept))
    saves = [await journals.save(WORKFLOW, b"new", expected, kept) for expected in (ABSENT, 17)]
    journal = await journals.journal(WORKFLOW)

    assert [True] == list(renewed)
    assert [Settled.WRITTEN] * 3 == settled
    assert [(Phase.COMPLETED, 201), None, (Phase.UNKNOWN, 502)] == [
        record and (record.phase, record.status) for record in records
    ]
    assert isinstance(again, Found)
    assert [THREE] == [identity for identity, _ in page.records]
    assert [Acted.DONE] * 2 == acted
    assert [(Verb.RESOLVE_NOT_EXECUTED, "ada", "nothing arrived"), (Verb.FORGET, "grace", "test data")] == trails
    assert [Saved(1_000_000), Conflict(1_000_000)] == saves
    assert (await inner.journals.journal(WORKFLOW)) == journal is not None
    operations = [
        *("check", "claim", "claim", "claim", "renew"),
        *("complete", "release", "mark_unknown"),
        *("read",) * 3,
        *("claim", "list", "resolve", "forget", "audit", "audit"),
        *("note", "save", "save", "journal"),
    ]
    assert [(operation, 0.5, None) for operation in operations] == reports
    assert set(STORE_OPERATIONS) == set(operations)


async def test_failed_operation_is_reported_and_raised_as_it_was() -> None:
    """An operation that the store did not confirm is reported as such, and its error reaches the caller unchanged."""
    failure = StoreUnavailableError("memory: the clock has stopped; wind it up")

    def stopped() -> int:
        raise failure

    reports: Reports = []
    store = measured(MemoryStore(stopped), reports)

    with pytest.raises(StoreUnavailableError) as raised:
        await store.claim(ONE, ASK)

    assert failure is raised.value
    assert [("claim", 0.5, failure)] == reports


async def test_a_question_that_makes_no_sense_says_nothing_of_the_store() -> None:
    """A cursor that is none is the caller's mistake: it is told so, and the store is not reported as failing."""
    reports: Reports = []

    with pytest.raises(ValueError, match="is not a cursor"):
        await measured(MemoryStore(lambda: 1_000_000), reports).list(None, 10, "nonsense")

    assert [] == reports


class HangingStore(MemoryStore):
    """A memory store whose `check` never returns, and which remembers how it was asked to claim."""

    def __init__(self) -> None:
        super().__init__(lambda: 1_000_000)
        self.watched: list[bool] = []

    async def check(self) -> None:
        """Hang."""
        await asyncio.Event().wait()

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As any memory store, remembering `watched`."""
        self.watched.append(watched)
        return await super().claim(identity, ask, watched=watched)


@pytest.mark.parametrize("steps", [0, 1])
async def test_cancelled_operation_is_not_reported(steps: int) -> None:
    """A caller cancelled before its operation began, or in its middle, says nothing of the store and leaves nothing unawaited."""
    reports: Reports = []
    task = asyncio.create_task(measured(HangingStore(), reports).check())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert [] == reports


async def test_wish_to_be_woken_reaches_the_store() -> None:
    """`watched` is passed on as it was given: without it, no other process would wake who waits."""
    inner = HangingStore()
    store = measured(inner, [])

    await store.claim(ONE, ASK, watched=True)
    await store.claim(ONE, ASK)

    assert [True, False] == inner.watched


async def test_name_life_and_waiting_are_the_inner_stores_and_not_measured() -> None:
    """A measured store is called, started, looked at, closed and watched as the store inside it."""
    reports: Reports = []
    inner = MemoryStore(lambda: 1_000_000)
    store = measured(inner, reports)

    await store.start()
    with store.watch(ONE) as wake:
        granted = await inner.claim(ONE, ASK, watched=True)
        assert isinstance(granted, Granted)
        waiting = asyncio.create_task(wake.wait(30))
        await asyncio.sleep(0)
        await inner.release(ONE, granted.hold)
        await waiting
    found = await store.inspect()
    await store.close()

    assert "memory" == store.name
    assert await inner.inspect() == found
    assert [] == reports
