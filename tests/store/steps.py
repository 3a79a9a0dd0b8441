"""Steps that tests of every store share: whose record, what is asked, and a claim that must be granted."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from idemproxy.core.record import MICROSECONDS, Identity, Phase, Record
from idemproxy.core.transition import Ask, Completion, Doubt, Found, Granted, Hold, Settled
from idemproxy.store.base import Page, Store

LEASE: Final = 15 * MICROSECONDS
RETENTION: Final = 86_400 * MICROSECONDS
EXPIRED_MARK: Final = 7 * 86_400 * MICROSECONDS
ANSWER: Final = b"\x01201\x00\x00\x00\x0bCreated\r\n\r\n\x00\xff\xfe bytes, not text \x80"
WITHIN: Final = 10.0
"""Seconds: far more than anything here takes, so that a hang becomes a failure."""


def identity(key: str = "key", scope: str = "shared", upstream: str = "payments") -> Identity:
    """Whose record: hashes look alike, so any text does for one."""
    return Identity(scope, upstream, key)


def ask(fingerprint: str = "v1:same", *, owner: str | None = None, lease: int = LEASE, reclaim: int | None = None) -> Ask:
    """A wish to forward, by a new owner unless one is named."""
    return Ask(fingerprint, owner or secrets.token_hex(16), "charges", lease, reclaim)


def completion(answer: bytes | None = ANSWER, status: int = 201) -> Completion:
    """An answer, kept for a day, and its mark for a week."""
    return Completion(status, RETENTION, EXPIRED_MARK, answer=answer)


async def granted(store: Store, of: Identity, wish: Ask | None = None) -> Hold:
    """Claim what must be free."""
    result = await store.claim(of, wish or ask())
    assert isinstance(result, Granted)
    return result.hold


async def found(store: Store, of: Identity, wish: Ask | None = None) -> Record:
    """Claim what must not be free; the record as it was found."""
    result = await store.claim(of, wish or ask())
    assert isinstance(result, Found)
    return result.record


async def phases(store: Store, *identities: Identity) -> list[Phase | None]:
    """The phase of each record, None where there is none."""
    records = [await store.read(each) for each in identities]
    return [None if record is None else record.phase for record in records]


async def pages(store: Store, phase: Phase | None = None, limit: int = 100) -> list[Page]:
    """All pages of a list from the first to the last."""
    turned = [await store.list(phase, limit, "")]
    while turned[-1].cursor:
        turned.append(await store.list(phase, limit, turned[-1].cursor))
    return turned


async def listed(store: Store, phase: Phase | None = None, limit: int = 100) -> dict[Identity, Record]:
    """Every record that is listed."""
    return {of: record for page in await pages(store, phase, limit) for of, record in page.records}


SETTLEMENTS: dict[str, Callable[[Store, Identity, Hold], Awaitable[Settled]]] = {
    "complete": lambda store, of, hold: store.complete(of, hold, completion()),
    "release": lambda store, of, hold: store.release(of, hold),
    "mark_unknown": lambda store, of, hold: store.mark_unknown(of, hold, Doubt(500, answer=ANSWER)),
}
"""What a holder can write last."""
