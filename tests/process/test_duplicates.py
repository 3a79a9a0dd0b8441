"""Many of one: what arrives together under one key is one request to the upstream, and everyone gets its answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import monotonic
from typing import Final

import aiohttp
import pytest

from tests.process.asking import CHARGE, Answer, ask, claims, eventually
from tests.process.upstream import Upstream, upstream
from tests.processes import Program, proxy

MANY: Final = 200
PROMPT: Final = 0.5
"""Seconds within which a waiter has its answer. One that nobody wakes looks for itself, a second after it began to wait."""


@pytest.fixture(scope="module")
def api() -> Iterator[Upstream]:
    """An upstream that answers when it may."""
    with upstream() as server:
        yield server


@pytest.fixture(scope="module", params=[1, 2], ids=["one_proxy", "two_proxies"])
def proxies(request: pytest.FixtureRequest, api: Upstream, store_url: str) -> Iterator[list[Program]]:
    """One proxy, or two processes, on one store."""
    with ExitStack() as stack:
        yield [stack.enter_context(proxy("--upstream", api.url, "--store", store_url)) for _ in range(request.param)]


async def test_200_duplicates_are_one_request_and_200_equal_answers(proxies: list[Program], api: Upstream, key: str) -> None:
    """One is executed, 199 wait for it and are replays, equal to the byte; the upstream sees one request."""
    before, asked = len(api.arrived), sum(claims(each.admin) for each in proxies)
    api.hold()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        replies = [asyncio.create_task(_post(session, proxies[number % len(proxies)].url, key)) for number in range(MANY)]
        # Who finds the key in flight asks once more, now to be woken, and then waits: all are waiting, and nothing is over.
        waiting = asked + 1 + 2 * (MANY - 1)
        await asyncio.to_thread(eventually, lambda: sum(claims(each.admin) for each in proxies) >= waiting)
        early = [reply for reply in replies if reply.done()]
        api.let_go()
        answers = await asyncio.gather(*replies)

    assert [] == early
    assert before + 1 == len(api.arrived)
    assert {(201, b'{"id": "op_%d"}' % (before + 1)): MANY} == Counter((answer.status, answer.body) for answer in answers)
    assert {"executed": 1, "replayed": MANY - 1} == Counter(answer.told for answer in answers)
    assert {None: 1, "true": MANY - 1} == Counter(answer.field("Idempotent-Replayed") for answer in answers)


def test_a_waiter_is_woken_and_need_not_look(proxies: list[Program], api: Upstream, key: str) -> None:
    """The second request has its answer well before it would look by itself, also from another process."""
    # The quickest counts: a busy machine may be late now and then, a waiter that nobody wakes always is.
    assert min(_lateness(proxies, api, f"{key}-{number}") for number in range(3)) < PROMPT


def _lateness(proxies: list[Program], api: Upstream, key: str) -> float:
    """Seconds from the upstream's answer to the first request until the last proxy has answered the second."""
    arrived = len(api.arrived)
    api.hold()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, proxies[0].url, key)
        eventually(lambda: len(api.arrived) > arrived)
        asked = claims(proxies[-1].admin)
        second = pool.submit(lambda: (ask(proxies[-1].url, key), monotonic()))
        eventually(lambda: claims(proxies[-1].admin) >= asked + 2)  # it has asked again, to be woken, and waits
        api.let_go()
        answer, answered_at = second.result()
        assert ["executed", "replayed"] == [first.result().told, answer.told]
    return answered_at - api.answered_at


async def _post(session: aiohttp.ClientSession, url: str, key: str) -> Answer:
    fields = {"Idempotency-Key": key, "Content-Type": "application/json"}
    async with session.post(f"{url}/charges", data=CHARGE, headers=fields) as answer:
        return Answer(answer.status, list(answer.headers.items()), await answer.read())
