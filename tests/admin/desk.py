"""What an operator works at: an admin listener over a memory store, whose clock stands still until it is moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from aiohttp.web import Application

from idemproxy.admin.access import Access
from idemproxy.admin.app import admin_app
from idemproxy.admin.health import Health
from idemproxy.admin.records import Records
from idemproxy.admin.sight import Alone
from idemproxy.core.message import Answer
from idemproxy.core.policy import Policy
from idemproxy.core.record import MICROSECONDS, Identity, pack_answer
from idemproxy.core.transition import Ask, Completion, Doubt, Granted, Hold
from idemproxy.observe.metrics import Metrics
from idemproxy.store.memory import MemoryStore

NOON: Final = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z, where each desk's clock begins."""

BRIEF: Final = Policy(retention=60.0, expired_mark=600.0, max_stored_body=32, replay_denied=frozenset({b"x-once"}))
"""The policy of the route `brief`; `charges` has the default one, and no other route is configured."""

FAILURE: Final = Answer(500, b"Internal Server Error", ((b"Content-Type", b"text/plain"), (b"X-Trace", b"\xe9")), b"out of order")


def identity(key: str, upstream: str = "payments") -> Identity:
    """Whose record."""
    return Identity("shared", upstream, key)


@dataclass
class Desk:
    """The store and its clock, and what they are asked through."""

    now: int = NOON
    token: bytes | None = None
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda: self.now)

    def app(self) -> Application:
        """The listener's application."""
        records = Records(self.store, {"charges": Policy(), "brief": BRIEF}, Access(self.token))
        return admin_app(Alone(Metrics(["charges"], "memory"), Health({})), records)

    async def claimed(self, of: Identity, route: str = "charges") -> Hold:
        """A record in flight, with a lease of 15 s."""
        granted = await self.store.claim(of, Ask("v1:same", "owner", route, 15 * MICROSECONDS))
        assert isinstance(granted, Granted)
        return granted.hold

    async def unknown(self, of: Identity, route: str = "charges") -> int:
        """A record whose outcome is unknown after the upstream's FAILURE; its fence."""
        hold = await self.claimed(of, route)
        await self.store.mark_unknown(of, hold, Doubt(500, answer=pack_answer(FAILURE)))
        return hold.fence

    async def completed(self, of: Identity, body: bytes = b"done") -> int:
        """A record that is completed, for an hour, and known to be for another; its fence."""
        hold = await self.claimed(of)
        answer = pack_answer(Answer(201, b"Created", (), body))
        await self.store.complete(of, hold, Completion(201, 3600 * MICROSECONDS, 3600 * MICROSECONDS, answer=answer))
        return hold.fence
