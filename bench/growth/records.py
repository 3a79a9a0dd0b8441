"""What the number of stored records costs, asked of the stores themselves."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final, TypeAlias

from bench.growth import prefill
from bench.growth.curves import Curve
from bench.load import WrongAnswerError
from bench.loop import loop_factory
from bench.machine import on
from bench.stage import Stage
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
_PREFIX: Final = "growth:"
_FINGERPRINT: Final = f"v1:{secrets.token_urlsafe(32)}"
_DAY: Final = 86_400 * MICROSECONDS
_COMPLETION: Final = Completion(200, _DAY, 7 * _DAY, answer=pack_answer(Answer(200, b"OK", (), ANSWER_BODY)))

Fill: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Adds copies: how many there are, how many more."""


def measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    """Claims of new keys and claims that find an answer, on both stores, in turn. Raises WrongAnswerError and StoreError."""
    with on(stage.cores.server), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_measure(stage, seconds, most))


async def _measure(stage: Stage, seconds: float, most: int) -> list[Curve]:
    url, file = f"redis://127.0.0.1:{stage.redis[0]}/1", stage.directory / "records.db"
    known = _identity()

    async def fill_redis(before: int, count: int) -> None:
        await prefill.redis(url, _PREFIX, known, before, count)

    async def fill_sqlite(_: int, count: int) -> None:
        await asyncio.to_thread(prefill.sqlite, file, known, count)

    stores: tuple[tuple[str, Store, Fill], ...] = (
        ("Redis", RedisStore(url, prefix=_PREFIX, deadline=10), fill_redis),
        ("SQLite", SqliteStore(file, clock=host_clock()), fill_sqlite),
    )
    curves = []
    async with AsyncExitStack() as stack:
        for name, store, fill in stores:
            await store.start()
            stack.push_async_callback(store.close)
            new, found, before = [], [], 0
            await _write(store, known)
            for count in (each for each in _COUNTS if each <= most):
                await fill(before, count - before)
                before = count
                new.append((count, await _p50_ms(partial(_claim, store), seconds)))
                found.append((count, await _p50_ms(partial(_find, store, known), seconds)))
            curves += [
                Curve(QUESTION, f"{name}, a new key", "ms", tuple(new)),
                Curve(QUESTION, f"{name}, an answer", "ms", tuple(found)),
            ]
    return curves


async def _p50_ms(work: Callable[[], Awaitable[object]], seconds: float) -> float:
    began, took = perf_counter(), []
    while (before := perf_counter()) < began + seconds:
        await work()
        took.append(perf_counter() - before)
    return median(took) * 1e3


async def _claim(store: Store) -> None:
    if not isinstance(claimed := await store.claim(_identity(), _ask()), Granted):
        raise WrongAnswerError(f"{store.name}: a new key was not granted: {claimed}")


async def _write(store: Store, identity: Identity) -> None:
    match await store.claim(identity, _ask()):
        case Granted(hold) if await store.complete(identity, hold, _COMPLETION) is Settled.WRITTEN:
            pass
        case other:
            raise WrongAnswerError(f"{store.name}: not written: {other}")


async def _find(store: Store, identity: Identity) -> None:
    if not isinstance(found := await store.claim(identity, _ask()), Found):
        raise WrongAnswerError(f"{store.name}: a claim did not find the answer: {found}")


def _identity() -> Identity:
    return Identity("shared", "payments", secrets.token_hex(32))


def _ask() -> Ask:
    return Ask(_FINGERPRINT, secrets.token_hex(16), "charges", 15 * MICROSECONDS)
