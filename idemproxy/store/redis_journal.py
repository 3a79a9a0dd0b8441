"""Journals on the Redis server: one hash for each workflow, `PREFIX{w/SCOPE/ID-HASH}`, in a slot of its own (lua/journal.lua).

A hash alone, so that it expires as a whole. It has the commands of records, and no other: whoever may keep those may keep it.
"""

from __future__ import annotations

import json
from typing import cast

from idemproxy.core.journal import Conflict, Entry, Journal, Memory, Note, Saved, SaveResult, WorkflowIdentity
from idemproxy.core.record import Identity
from idemproxy.store import redis_form
from idemproxy.store.redis_cluster import ClusterLink
from idemproxy.store.redis_lane import Reply
from idemproxy.store.redis_link import Link
from idemproxy.store.redis_script import JOURNAL, NOTE, SAVE


class RedisJournals:
    """Journals under a prefix, over the link of their store."""

    def __init__(self, link: Link | ClusterLink, prefix: str) -> None:
        self._link = link
        self._begins = f"{prefix}{{w/"

    async def note(self, workflow: WorkflowIdentity, note: Note) -> None:
        """As base_journal.Journals.note."""
        await self._link.run(NOTE, self._key(workflow), str(note.record), _told(note), note.kept)

    async def journal(self, workflow: WorkflowIdentity) -> tuple[Journal, int] | None:
        """As base_journal.Journals.journal."""
        reply = await self._link.run(JOURNAL, self._key(workflow))
        return None if reply is None else _journal(reply)

    async def save(self, workflow: WorkflowIdentity, content: bytes, expected: int | None, kept: int) -> SaveResult:
        """As base_journal.Journals.save."""
        reply = await self._link.run(SAVE, self._key(workflow), content, redis_form.number(expected), kept)
        word, version = cast("tuple[bytes, int]", reply)
        return Saved(version) if word == b"saved" else Conflict(version)

    def _key(self, workflow: WorkflowIdentity) -> bytes:
        return f"{self._begins}{workflow}}}".encode()


def _journal(reply: Reply) -> tuple[Journal, int]:
    now, forget_at, version, before, content, steps = cast("tuple[int, bytes, bytes, bytes, bytes, list[bytes]]", reply)
    memory = Memory(content, int(version), int(before)) if version else None
    return Journal(tuple(map(_entry, steps)), memory, int(forget_at)), now


def _told(note: Note) -> bytes:
    record = note.record
    told = (record.scope, record.upstream, record.key_hash, note.route, note.step, note.action)
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def _entry(step: bytes) -> Entry:
    at, kept, told = step.split(b" ", 2)
    scope, upstream, key_hash, route, *words = json.loads(told)
    return Entry(Note(Identity(scope, upstream, key_hash), route, int(kept), *words), int(at))
