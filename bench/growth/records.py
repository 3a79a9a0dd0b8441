"""What the number of stored records costs, asked of the stores themselves.

There is a store for each number, all of them filled first: databases of one Redis server, and files. Then they are asked in
turn, a short while each, again and again, so that what disturbs the machine disturbs all. A new key is freed at once, and so the
numbers stay what they are.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final

from bench.growth import prefill
from bench.growth.curves import Curve
from bench.load import WrongAnswerError
from bench.loop import loop_factory
from bench.machine import on
from bench.stage import Stage
from bench.targets import Target
from bench.wire import ANSWER_BODY
from idemproxy.core.message import Answer
from idemproxy.core.record import MICROSECONDS, Identity, pack_answer
from idemproxy.core.transition import Ask, Completion, Found, Granted, Settled
from idemproxy.store.base import Store
from idemproxy.store.base_host import host_clock
from idemproxy.store.redis import RedisStore
from idemproxy.store.sqlite import SqliteStore

QUESTION: Final = "records"
AXIS: Final = "number of stored records"

_COUNTS: Final = (0, 1_000, 10_000, 100_000, 1_000_000)
_ROUNDS: Final = 15
_WARM_UP: Final = 500
"""Claims of each store before any is timed: SQLite's log of writes is then as long as it gets, and from there on written over."""
_TARGET: Final = Target(1.3, 1.1, less_is_better=True)
_PREFIX: Final = "growth:"
_FINGERPRINT: Final = f"v1:{secrets.token_urlsafe(32)}"
_DAY: Final = 86_400 * MICROSECONDS
_COMPLETION: Final = Completion(200, _DAY, 7 * _DAY, answer=pack_answer(Answer(200, b"OK", (), ANSWER_BODY)))


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """Claims of new keys and claims that find an answer, on both stores. Raises WrongAnswerError and StoreError."""
    with on(stage.cores.server), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_measure(stage, seconds, [count for count in _COUNTS if count <= most]))


async def _measure(stage: Stage, seconds: float, counts: Sequence[int]) -> list[Curve]:
    curves = []
    for name, fill in (("Redis", _on_redis), ("SQLite", _on_sqlite)):
        async with AsyncExitStack() as stack:
            known = {count: _identity() for count in counts}
            stores = {}
            for count, identity in known.items():
                stores[count] = store = await fill(stack, stage, count, identity)
                for _ in range(_WARM_UP):
                    await _claim(store, identity)
            await asyncio.to_thread(os.sync)  # what was filled in is on the disk before anything waits for the disk
            for what, work in (("a new key", _claim), ("an answer", _find)):
                p50s = await _p50s_ms([partial(work, stores[count], known[count]) for count in counts], seconds)
                curves.append(Curve(QUESTION, f"{name}, {what}", "ms", tuple(zip(counts, p50s, strict=True)), _TARGET))
    return curves


async def _on_redis(stack: AsyncExitStack, stage: Stage, count: int, identity: Identity) -> Store:
    """A store with one answer, and so many copies of it; each is a database of its own, with a table of its own."""
    url = f"redis://127.0.0.1:{stage.redis[0]}/{1 + _COUNTS.index(count)}"
    store = await _started(stack, RedisStore(url, prefix=_PREFIX, deadline=10), identity)
    await prefill.redis(url, _PREFIX, identity, 0, count)
    return store


async def _on_sqlite(stack: AsyncExitStack, stage: Stage, count: int, identity: Identity) -> Store:
    file = stage.directory / f"records-{count}.db"
    store = await _started(stack, SqliteStore(file, clock=host_clock()), identity)
    await asyncio.to_thread(prefill.sqlite, file, identity, count)
    return store


async def _started(stack: AsyncExitStack, store: Store, identity: Identity) -> Store:
    await store.start()
    stack.push_async_callback(store.close)
    await _write(store, identity)
    return store


async def _p50s_ms(works: Sequence[Callable[[], Awaitable[float]]], seconds: float) -> list[float]:
    """For each the median of the rounds' medians, `seconds` for each in all; every other round is in reverse."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(_ROUNDS):
        turn = list(zip(works, found, strict=True))
        for work, medians in reversed(turn) if number % 2 else turn:
            end, took = perf_counter() + seconds / _ROUNDS, [await work()]
            while perf_counter() < end:
                took.append(await work())
            medians.append(median(took))
    return [median(medians) * 1e3 for medians in found]


async def _claim(store: Store, _: Identity) -> float:
    """The time to claim a new key, which is freed then."""
    identity, ask, before = _identity(), _ask(), perf_counter()
    claimed = await store.claim(identity, ask)
    took = perf_counter() - before
    if not isinstance(claimed, Granted) or await store.release(identity, claimed.hold) is not Settled.WRITTEN:
        raise WrongAnswerError(f"{store.name}: a new key was not granted, or not freed: {claimed}")
    return took


async def _write(store: Store, identity: Identity) -> None:
    match await store.claim(identity, _ask()):
        case Granted(hold) if await store.complete(identity, hold, _COMPLETION) is Settled.WRITTEN:
            pass
        case other:
            raise WrongAnswerError(f"{store.name}: not written: {other}")


async def _find(store: Store, identity: Identity) -> float:
    """The time to claim a key that has an answer."""
    ask, before = _ask(), perf_counter()
    found = await store.claim(identity, ask)
    took = perf_counter() - before
    if not isinstance(found, Found):
        raise WrongAnswerError(f"{store.name}: a claim did not find the answer: {found}")
    return took


def _identity() -> Identity:
    return Identity("shared", "payments", secrets.token_hex(32))


def _ask() -> Ask:
    return Ask(_FINGERPRINT, secrets.token_hex(16), "charges", 15 * MICROSECONDS)
