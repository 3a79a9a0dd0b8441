"""Steps that tests of every store share: whose record, what is asked, and a claim that must be granted."""

from __future__ import annotations

import secrets
from typing import Final

from idemproxy.core.record import MICROSECONDS, Identity, Record
from idemproxy.core.transition import Ask, Completion, Found, Granted, Hold
from idemproxy.store.base import Store

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
    return Completion(status, RETENTION, EXPIRED_MARK, answer)


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
