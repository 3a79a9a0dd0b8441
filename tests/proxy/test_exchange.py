"""The journey, step by step, on a store whose moments the test chooses: who else acts in between, and which replies are lost."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from idemproxy.core.ending import still_unknown
from idemproxy.core.journal import Note, WorkflowIdentity
from idemproxy.core.message import Request
from idemproxy.core.origin import Arrival
from idemproxy.core.outcome import Unsure
from idemproxy.core.policy import OnUnknown, Policy, Route, Upstream
from idemproxy.core.record import MICROSECONDS, Identity, Phase, Record
from idemproxy.core.transition import Acted, Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.observe.metrics import Metrics
from idemproxy.proxy.answers import outcome_unknown
from idemproxy.proxy.exchange import Call, Exchange, Journey
from idemproxy.proxy.lease import Leases
from idemproxy.proxy.orphans import Owner
from idemproxy.proxy.pool import Pool
from idemproxy.proxy.reply import Reply
from idemproxy.proxy.settler import Settler
from idemproxy.store.base import StoreUnavailableError, StoreUncertainError
from idemproxy.store.memory import MemoryStore
from idemproxy.store.memory_journal import MemoryJournals
from tests.servers import free_port

ME = Identity("shared", "api", "key")
ARRIVAL = Arrival("", is_secure=False, is_trusted=False, request_id=b"r-1")
COMPLETION = Completion(201, 3600 * MICROSECONDS, 3600 * MICROSECONDS, answer=b"\x01201\x00\x00\x00\x09Created\r\nyes")
FLOW = WorkflowIdentity("shared", "flow")
STEP = Note(ME, "all", 3600 * MICROSECONDS, "1", "pay")
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"
REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"


class Journals(MemoryJournals):
    """Memory, in which a note can fail, and the request is not forwarded before `kept` is set."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.fails = False
        self.kept = asyncio.Event()
        self.kept.set()

    async def note(self, workflow: WorkflowIdentity, note: Note) -> None:
        """As told."""
        await self.kept.wait()
        if self.fails:
            raise StoreUnavailableError("the journal cannot be written")
        await super().note(workflow, note)


class Store(MemoryStore):
    """Memory, in which others can act before a release, and the reply to a claim can be lost."""

    def __init__(self) -> None:
        super().__init__(lambda: self.now)
        self.now = 1_000 * MICROSECONDS
        self.journals: Journals = Journals(lambda: self.now)
        self.before_release: Callable[[], Awaitable[object]] | None = None
        self.fates: list[str] = []
        """What becomes of the next claims: `carried out` or `not carried out` with the reply lost, or "" for neither."""
        self.reads = 0

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """As its fate has it."""
        fate = self.fates.pop(0) if self.fates else ""
        if fate != "not carried out":
            claimed = await super().claim(identity, ask, watched=watched)
            if not fate:
                return claimed
        raise StoreUncertainError("the reply was lost")

    async def read(self, identity: Identity) -> Record | None:
        """Counted."""
        self.reads += 1
        return await super().read(identity)

    async def release(self, identity: Identity, hold: Hold) -> Settled:
        """After whoever is quicker."""
        act, self.before_release = self.before_release, None
        if act is not None:
            await act()
        return await super().release(identity, hold)


@dataclass
class World:
    """One proxy's exchange on a store, in front of an upstream that answers as told, or is not there."""

    store: Store
    settler: Settler
    exchange: Exchange
    policy: Policy
    requests: list[bytes] = field(default_factory=list)

    async def send(self, note: tuple[WorkflowIdentity, Note] | None = None) -> Reply:
        """One request with the key, to its reply."""
        route = Route("all", "api", policy=self.policy)
        request = Request("POST", b"/pay", ((b"Host", b"x"), (b"Content-Length", b"1")), b"1")
        return await self.exchange.start(Call(request, route, ME, "key", "v1:same", 0.0, ARRIVAL, note)).waiter

    async def record(self) -> Record | None:
        """What the store says of the operation."""
        return await self.store.read(ME)

    async def made_unknown(self) -> Record:
        """The operation was sent by a proxy that died; its outcome is unknown."""
        claimed = await self.store.claim(ME, Ask("v1:same", "dead", "all", MICROSECONDS))
        assert isinstance(claimed, Granted)
        await self.store.mark_unknown(ME, claimed.hold, Doubt(500, answer=b"an error"))
        record = await self.record()
        assert record is not None
        return record


@asynccontextmanager
async def world(answer: bytes | None, on_unknown: OnUnknown = OnUnknown.HOLD) -> AsyncIterator[World]:
    """`answer` None: nobody listens where the upstream should be."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n1"))
        writer.write(answer or b"")
        await reader.read()
        writer.close()

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(serve, "127.0.0.1", 0) if answer is not None else None
    port = free_port() if server is None else server.sockets[0].getsockname()[1]
    store, metrics = Store(), Metrics(["all"], "memory")
    settler, leases = Settler(store, None, metrics, loop), Leases(store, loop, 5.0, metrics)
    pool = Pool(Upstream("api", "http", "127.0.0.1", port), loop)
    try:
        exchange = Exchange(store, settler, leases, {"api": pool}, Owner("test"), loop)
        yield World(store, settler, exchange, Policy(on_unknown=on_unknown), requests)
    finally:
        pool.close()
        await leases.close()
        await settler.close()
        if server is not None:
            server.close()


async def test_an_attempt_without_effect_does_not_free_what_was_unknown_before() -> None:
    """Under `retry`: the upstream is gone when the second try comes, and the first may have acted: the outcome stays unknown."""
    async with world(None, OnUnknown.RETRY) as w:
        before = await w.made_unknown()

        reply = await w.send()

        after = await w.record()
        assert (409, "outcome-unknown") == (reply.status, reply.slug)
        assert after is not None
        assert (Phase.UNKNOWN, 500, b"an error", before.settled_at) == (after.phase, after.status, after.answer, after.settled_at)


async def test_a_refusal_of_the_second_try_does_not_free_what_was_unknown_before() -> None:
    """Under `retry`: the upstream's 429 speaks of the second try only; the caller gets it, marked unknown."""
    async with world(REFUSAL, OnUnknown.RETRY) as w:
        await w.made_unknown()

        reply = await w.send()

        after = await w.record()
        assert (429, "unknown") == (reply.status, reply.outcome)
        assert (Phase.UNKNOWN, b"an error") == (after and after.phase, after and after.answer)


async def test_a_first_try_without_effect_frees_the_key() -> None:
    """Where nothing was unknown before, a refused connection leaves nothing behind, and the caller is told so."""
    async with world(None) as w:
        reply = await w.send()

        assert (502, "not-sent", None) == (reply.status, reply.slug, await w.record())


async def test_a_holder_that_was_overtaken_tells_what_the_other_did() -> None:
    """A release that comes too late is no proof: the operation was decided and run by others; the caller gets their answer."""
    async with world(None) as w:

        async def others_act() -> None:
            w.store.now += 60 * MICROSECONDS  # the lease is over
            record = await w.record()
            assert record is not None
            assert Acted.DONE is await w.store.resolve(ME, record.fence, None, "ann", "it was not executed")
            claimed = await w.store.claim(ME, Ask("v1:same", "another", "all", MICROSECONDS))
            assert isinstance(claimed, Granted)
            await w.store.complete(ME, claimed.hold, COMPLETION)

        w.store.before_release = others_act
        reply = await w.send()

        assert (201, "replayed", b"yes") == (reply.status, reply.outcome, reply.body)


@pytest.mark.parametrize("fate", ["carried out", "not carried out"])
async def test_a_lost_reclaim_is_put_back_and_never_freed(fate: str) -> None:
    """A claim of an unknown record whose reply was lost is undone when the store is back: the outcome is as unknown as it was."""
    async with world(None, OnUnknown.RETRY) as w:
        before = await w.made_unknown()
        w.store.fates += ["", fate]  # the first claim finds it unknown; the second asks for its fence
        looked = w.store.reads

        reply = await w.send()
        while w.store.reads == looked:  # noqa: ASYNC110 - until what was lost has been looked for, and put back
            await asyncio.sleep(0)
        await asyncio.sleep(0)

        after = await w.record()
        assert (409, "outcome-unknown") == (reply.status, reply.slug)
        assert after is not None
        assert (Phase.UNKNOWN, before.settled_at, b"an error") == (after.phase, after.settled_at, after.answer)


async def test_a_lost_claim_is_given_back() -> None:
    """A claim of a free key whose reply was lost is released when the store is back: nothing was sent under it."""
    async with world(None) as w:
        w.store.fates += ["carried out"]

        reply = await w.send()
        while await w.record() is not None:  # noqa: ASYNC110 - until it has been given back
            await asyncio.sleep(0)

        assert (503, "store-unavailable", []) == (reply.status, reply.slug, w.requests)


async def test_an_answer_that_comes_during_a_probe_is_written_when_the_probe_has_proved_nothing() -> None:
    """Who asks holds the record meanwhile; the late answer waits for it to be given back, and is then what is replayed."""
    async with world(None) as w:
        claimed = await w.store.claim(ME, Ask("v1:same", "late", "all", MICROSECONDS))
        assert isinstance(claimed, Granted)
        w.store.now += 60 * MICROSECONDS  # the lease is over
        record = await w.record()
        assert record is not None
        asking = await w.store.claim(ME, Ask("v1:same", "asks", "all", 600 * MICROSECONDS, record.fence))
        assert isinstance(asking, Granted)

        settled = await w.settler.settle(ME, claimed.hold, COMPLETION)
        await w.store.mark_unknown(ME, asking.hold, still_unknown(record))
        while w.settler.unkept:  # noqa: ASYNC110 - until it is offered again
            await asyncio.sleep(0.01)

        reply = await w.send()
        assert (Settled.STALE, 201, "replayed", b"yes") == (settled, reply.status, reply.outcome, reply.body)


# The journal


async def test_a_step_is_in_the_journal_before_it_is_forwarded() -> None:
    """While the note is not kept, the claim is held and nothing leaves."""
    async with world(DONE) as w:
        w.store.journals.kept.clear()
        sending = asyncio.create_task(w.send((FLOW, STEP)))
        while await w.record() is None:  # noqa: ASYNC110 - until it is claimed
            await asyncio.sleep(0)
        answered, _ = await asyncio.wait({sending}, timeout=0.2)  # long enough for a request that does not wait
        claimed, sent_before = await w.record(), [*w.requests, *answered]
        w.store.journals.kept.set()
        reply = await sending

        found = await w.store.journals.journal(FLOW)
        assert (Phase.IN_FLIGHT, [], 200) == (claimed and claimed.phase, sent_before, reply.status)
        assert [STEP] == [entry.note for entry in found[0].entries] if found else False


async def test_a_step_that_cannot_be_noted_is_not_forwarded() -> None:
    """Its claim is given back, so that a retry may come, and the caller is told that nothing was sent."""
    async with world(DONE) as w:
        w.store.journals.fails = True

        reply = await w.send((FLOW, STEP))

        assert (503, "store-unavailable", None, []) == (reply.status, reply.slug, await w.record(), w.requests)


async def test_an_unknown_step_that_cannot_be_noted_stays_unknown() -> None:
    """Under `retry`: the claim is given back to what it was."""
    async with world(DONE, OnUnknown.RETRY) as w:
        before = await w.made_unknown()
        w.store.journals.fails = True

        reply = await w.send((FLOW, STEP))

        after = await w.record()
        assert (409, "outcome-unknown", []) == (reply.status, reply.slug, w.requests)
        assert (Phase.UNKNOWN, before.settled_at) == (after and after.phase, after and after.settled_at)


async def test_what_is_refused_is_no_step() -> None:
    """A key that is another operation's: the journal does not take that one's answer for this step's."""
    async with world(DONE) as w:
        claimed = await w.store.claim(ME, Ask("v1:other", "another", "all", MICROSECONDS))
        assert isinstance(claimed, Granted)
        await w.store.complete(ME, claimed.hold, COMPLETION)

        reply = await w.send((FLOW, STEP))

        assert (422, "key-reused", None) == (reply.status, reply.slug, await w.store.journals.journal(FLOW))


async def test_a_lost_claim_is_no_step() -> None:
    """It may have been granted, and nothing was sent."""
    async with world(DONE) as w:
        w.store.fates += ["carried out"]

        reply = await w.send((FLOW, STEP))

        assert (503, None) == (reply.status, await w.store.journals.journal(FLOW))


async def test_a_replay_does_not_ask_the_journal() -> None:
    """What is done was noted when it began: its answer is given although a note cannot be kept now."""
    async with world(DONE) as w:
        first = await w.send((FLOW, STEP))
        w.store.journals.fails = True

        second = await w.send((FLOW, STEP))

        assert (200, 200, "replayed") == (first.status, second.status, second.outcome)


async def test_a_journey_lets_go_of_whom_it_has_told() -> None:
    """Who left hears of the reply once, and what they know, the journey perhaps, is not kept by it."""
    told: list[Reply] = []
    loop = asyncio.get_running_loop()
    journey = Journey(cast("Call", None), loop.create_future(), 0.0)
    journey.waiter.cancel()
    reply = outcome_unknown(Unsure("a test"))

    def unheard(reply: Reply) -> None:
        told.append(reply)

    known = weakref.ref(unheard)
    journey.leave(unheard)
    del unheard
    is_kept = known() is not None
    journey.tell(reply)

    assert ([reply], True, None) == (told, is_kept, known())
