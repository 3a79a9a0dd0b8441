"""Puts many records in a store, past its interface: copies of one that the store wrote itself, under keys drawn at random."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from redis.asyncio import Redis

from idemproxy.core.record import Identity
from idemproxy.store.redis_form import Keys

_AT_ONCE: Final = 10_000

_COPIES: Final = """
local record, from, count, begins = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
for number = from, from + count - 1 do
  local name = redis.sha1hex(number)
  local copy = begins .. '{' .. name:sub(1, 2) .. '}' .. ARGV[4] .. name .. name:sub(1, 24)
  redis.call('COPY', record, copy)
  redis.call('COPY', KEYS[2], copy .. ':answer')
end
"""


async def redis(url: str, prefix: str, identity: Identity, before: int, count: int) -> None:
    """Copy that record so often; `before`: how many copies there are already."""
    record, answer = Keys(prefix).of(identity)
    async with Redis.from_url(url, protocol=2) as client:
        for start in range(before, before + count, _AT_ONCE):
            most = min(_AT_ONCE, before + count - start)
            words = (str(start), str(most), prefix, f"{identity.scope}/{identity.upstream}/")
            await cast("object", client.eval(_COPIES, 2, record, answer, *words))  # type: ignore[misc]


def sqlite(path: Path, identity: Identity, count: int) -> None:
    """Copy that record so often. The keys are spread as drawn ones are, but written in their order, which is faster by far."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        names = [
            name for _, name, *_, hidden in connection.execute("PRAGMA table_xinfo(record)") if name != "key_hash" and not hidden
        ]
        listed, apart = ", ".join(names), 2**32 // max(1, count)
        for start in range(0, count, _AT_ONCE):
            connection.execute(
                f"INSERT INTO record (key_hash, {listed}) "  # noqa: S608 - the names are the table's own
                "WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
                f"SELECT printf('%08x', i * {apart}) || lower(hex(randomblob(28))), {listed} "
                "FROM n, record WHERE scope = ? AND upstream = ? AND key_hash = ?",
                (start, min(start + _AT_ONCE, count), identity.scope, identity.upstream, identity.key_hash),
            )
