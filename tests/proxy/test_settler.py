"""What the settler does about claims whose fate it does not know, on a store of which some records cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import pytest

from idemproxy.core.record import MICROSECONDS, Identity
from idemproxy.core.transition import Ask, Found, Granted, Release
from idemproxy.observe.metrics import Metrics
from idemproxy.proxy import settler as settling
from idemproxy.proxy.settler import Settler
from idemproxy.store.base import StoreUnavailableError
from idemproxy.store.memory import MemoryStore

WITHIN: Final = 10.0
KEYS: Final = [Identity("shared", "api", f"key-{number}") for number in range(4)]


class Store(MemoryStore):
    """Memory, of which some keys are out of reach, as those of one node of a cluster."""

    def __init__(self) -> None:
        super().__init__(lambda: 1_000 * MICROSECONDS)
        self.out: set[Identity] = set()
        self.refused: list[Identity] = []

    async def claim(self, identity: Identity, ask: Ask, *, watched: bool = False) -> Granted | Found:
        """Unless it is out of reach."""
        if identity in self.out:
            self.refused.append(identity)
            raise StoreUnavailableError("its node is down")
        return await super().claim(identity, ask, watched=watched)

    async def held(self) -> list[bool]:
        """Whether each key has a record."""
        return [await self.read(key) is not None for key in KEYS]


@pytest.fixture
async def store() -> Store:
    """In which each key was claimed by an owner of its own, which does not know it."""
    made = Store()
    for key in KEYS:
        await made.claim(key, wish(key))
    return made


@pytest.fixture
async def settler(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settler]:
    """On that store, without pauses."""
    monkeypatch.setattr(settling, "RETRY_SECONDS", 0)
    made = Settler(store, None, Metrics(["all"], "memory"), asyncio.get_running_loop())
    yield made
    await made.close()


def wish(key: Identity) -> Ask:
    """The claim that may have been granted."""
    return Ask("v1:same", f"owner of {key}", "all", 60 * MICROSECONDS)


async def eventually(store: Store, held: list[bool]) -> None:
    """Wait until just these keys have records."""
    async with asyncio.timeout(WITHIN):
        while held != await store.held():  # noqa: ASYNC110 - until the settler has come to it
            await asyncio.sleep(0)


async def test_claims_out_of_reach_do_not_hold_up_the_others(store: Store, settler: Settler) -> None:
    """Each that can be given back is, whichever come before it; the rest follows when it is within reach again."""
    store.out = {KEYS[0], KEYS[2]}
    for key in KEYS:
        settler.give_back(key, wish(key), Release())

    await eventually(store, [True, False, True, False])
    asked = store.refused[:2]
    store.out = {KEYS[2]}
    await eventually(store, [False, False, True, False])
    store.out = set()
    await eventually(store, [False] * 4)

    assert [KEYS[0], KEYS[2]] == asked
