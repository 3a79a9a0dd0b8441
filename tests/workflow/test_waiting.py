"""Who waits for an operation: woken by its settlement, and let go when the proxy stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import orjson
import pytest

from idemproxy.core.key import hash_secretly
from idemproxy.core.message import Request
from idemproxy.core.policy import Route
from idemproxy.core.record import Identity
from idemproxy.core.transition import Ask, Completion, Granted
from idemproxy.store.memory import MemoryStore
from idemproxy.workflow import keys
from idemproxy.workflow.asked import Asked
from tests.store.harness import Clock

if TYPE_CHECKING:
    from idemproxy.server.incoming import Incoming

ME = Identity("shared", "api", hash_secretly(b"order", None))


@pytest.mark.parametrize(("hurries", "phase"), [(False, "completed"), (True, "in_flight")], ids=["settled", "the proxy stops"])
def test_a_wait_ends(monkeypatch: pytest.MonkeyPatch, phase: str, *, hurries: bool) -> None:
    """Without looking again by itself: at the settlement, or at once when nobody may wait any more."""
    monkeypatch.setattr(keys, "FALLBACK_POLL", 3600.0)

    async def waited() -> bytes:
        store = MemoryStore(Clock())
        granted = await store.claim(ME, Ask("v1:x", "me", "all", 10**9))
        assert isinstance(granted, Granted)
        pages = keys.Keys(store, [Route("all", "api")], None, lambda: hurries)
        http = cast("Incoming", None)  # of which these pages need nothing
        asked = Asked(http, Request("GET", b"/_idemproxy/keys/order", ()), "order", {"wait": "120"}, 1.0)
        waiting = asyncio.ensure_future(pages.record(asked))
        for _ in range(20):  # until it has looked twice, and waits
            await asyncio.sleep(0)
        if not hurries:
            await store.complete(ME, granted.hold, Completion(201, 10**9, 10**9))
        async with asyncio.timeout(30):
            reply = await waiting
        assert isinstance(reply.body, bytes)
        return reply.body

    assert phase == orjson.loads(asyncio.run(waited()))["phase"]
