"""What a record costs a Redis server in memory: `python -m bench.memory_per_record`, `make bench-memory`.

A real server gets so many records through the store, and INFO tells what it uses for them. A record in flight, and one whose
answer has gone, are a hash; a completed one has a second key, its answer: the upstream's head and body. The bodies are JSON as
APIs give it: a list of objects, with the ids, names and times in them all different. The head has six fields, some 250 bytes.

    phase          in flight; completed, with a body of so many bytes; expired: without an answer, as a body that was not kept
    records        how many were written
    B/record       used_memory by record: keys, values, expiries, and what the allocator rounds them up to
    zstd, saved    B/record with answers compressed (store.compressed), and what that saves
    pack, open µs  processor time to compress and to decompress one answer

bench/results/memory.json holds the same. Needs Linux, as bench does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Final
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bench.machine import Cores
from bench.report import columns, described
from bench.stage import MissingError, NotStartedError, Stage
from idemproxy.core.message import Answer
from idemproxy.core.record import MICROSECONDS, Identity, pack_answer
from idemproxy.core.transition import Ask, Completion, Granted
from idemproxy.store.base import Store, StoreError
from idemproxy.store.compressed import CompressedStore, Packer
from idemproxy.store.redis import RedisStore

_ROOT: Final = Path(__file__).parents[1]
_LATEST: Final = _ROOT / "bench" / "results" / "memory.json"
_SIZES: Final = (0, 500, 1_024, 4_096, 16_384, 65_536)
_MOST: Final = 32 * 2**20
"""Bytes of bodies that are written for one row, at most."""
_AT_ONCE: Final = 100
_KINDS: Final = 16
"""Different bodies of one size: enough that no two neighbours are alike."""

_FIELDS: Final = (
    (b"Content-Type", b"application/json"),
    (b"Date", b"Sun, 29 Nov 2026 17:40:00 GMT"),
    (b"Cache-Control", b"no-cache, no-store"),
    (b"Location", b"https://api.example/v1/charges/ch_3SYq8wLkdIwHu7ix0Kxq4v0T"),
    (b"Strict-Transport-Security", b"max-age=63072000; includeSubDomains"),
)
_HEAD: Final = ("phase", "body", "records", "B/record", "zstd", "saved", "pack µs", "open µs")


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes for each record, plain and compressed; microseconds for each answer. `body` None: the phase has none."""

    phase: str
    body: int | None
    records: int
    plain: float
    compressed: float | None = None
    pack_us: float | None = None
    open_us: float | None = None


def body(size: int, dice: random.Random) -> bytes:
    """JSON objects as APIs have them, cut off at so many bytes."""
    objects = [_object(dice) for _ in range(size // 300 + 1)]
    return json.dumps({"object": "list", "has_more": False, "data": objects}).encode()[:size]


def _object(dice: random.Random) -> dict[str, object]:
    """About 400 bytes, of which a quarter is different each time."""
    return {
        "id": f"itm_{dice.randbytes(12).hex()}",
        "object": "charge",
        "amount": dice.randrange(100, 100_000),
        "currency": dice.choice(("eur", "usd", "gbp")),
        "created": 1_764_000_000 + dice.randrange(10**6),
        "captured": True,
        "customer": {"id": f"cus_{dice.randbytes(7).hex()}", "email": f"{dice.randbytes(4).hex()}@example.com", "phone": None},
        "metadata": {"order": str(UUID(bytes=dice.randbytes(16)))},
        "refunded": False,
        "status": "succeeded",
    }


def answers(size: int) -> list[bytes]:
    """Packed answers with bodies of so many bytes, no two alike, the same in every run."""
    dice = random.Random(size)  # noqa: S311 - makes bodies, guards nothing
    bodies = [body(size, dice) for _ in range(_KINDS)]
    length = (b"Content-Length", b"%d" % size)
    return [pack_answer(Answer(200, b"OK", (*_FIELDS, length), each)) for each in bodies]


async def _by_record(
    client: Redis,
    url: str,
    count: int,
    completions: Sequence[Completion],
    through: Callable[[Store], Store] = lambda store: store,
) -> float:
    """What so many records cost an empty server, in bytes for each, beyond what the store itself keeps there."""
    await client.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call]  # else old values may go later
    store = RedisStore(url, deadline=30.0)
    await store.start()
    before = (await client.info("memory"))["used_memory"]
    await _write(through(store), count, completions)
    used: int = (await client.info("memory"))["used_memory"] - before
    await store.close()
    return used / count


async def _write(store: Store, count: int, completions: Sequence[Completion]) -> None:
    """So many records, completed where there is something to complete them with."""

    async def one(number: int) -> None:
        ask = Ask(
            f"v1:{secrets.token_urlsafe(32)}", f"{secrets.token_hex(6)}-{secrets.token_hex(12)}", "charges", 3600 * MICROSECONDS
        )
        identity = Identity("shared", "payments", secrets.token_hex(32))
        match await store.claim(identity, ask):
            case Granted(hold) if completions:
                await store.complete(identity, hold, completions[number % len(completions)])
            case _:
                pass

    for start in range(0, count, _AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(start, min(start + _AT_ONCE, count))))


def _microseconds(packer: Packer, told: Sequence[bytes]) -> tuple[float, float]:
    """Processor time to compress and to decompress one answer."""
    rounds = range(max(4, 4 * 2**20 // (len(told) * max(map(len, told)))))
    began = process_time()
    packed: list[bytes] = []
    for _ in rounds:
        packed = [packer.packed(each) for each in told]
    between = process_time()
    for _ in rounds:
        for each in packed:
            packer.opened(each)
    ended, done = process_time(), len(rounds) * len(told)
    return (between - began) / done * 1e6, (ended - between) / done * 1e6


async def measure(url: str, most: int) -> list[Row]:
    """Each phase, and each size of body, plain and compressed. Raises StoreError and RedisError."""
    rows = []
    async with Redis.from_url(url, protocol=2) as client:
        day = 86_400 * MICROSECONDS
        for phase, completions in (("in flight", []), ("expired", [Completion(200, day, 7 * day)])):
            rows.append(Row(phase, None, most, await _by_record(client, url, most, completions)))
        for size in _SIZES:
            told = answers(size)
            completions = [Completion(200, day, 7 * day, answer=each) for each in told]
            count = min(most, _MOST // max(1, size))
            plain = await _by_record(client, url, count, completions)
            compressed = await _by_record(client, url, count, completions, CompressedStore)
            rows.append(Row("completed", size, count, plain, compressed, *_microseconds(Packer(), told)))
    return rows


def _line(row: Row) -> tuple[str, ...]:
    figures = (row.phase, "" if row.body is None else f"{row.body:,}", f"{row.records:,}", f"{row.plain:,.0f}")
    if row.compressed is None:
        return (*figures, "", "", "", "")
    saved = f"{(1 - row.compressed / row.plain) * 100:.0f} %"
    return (*figures, f"{row.compressed:,.0f}", saved, f"{row.pack_us:.1f}", f"{row.open_us:.1f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the results. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory_per_record", description="What a record costs Redis in memory.")
    parser.add_argument("--records", type=int, default=10_000, metavar="N", help="for each row, at most (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=_LATEST, metavar="FILE", help="default: bench/results/memory.json")
    parsed = parser.parse_args(arguments)
    if parsed.records < 1:
        parser.error("--records must be at least 1")
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    cores = Cores.of_this_machine()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory, closing(Stage(Path(directory), cores)) as stage:
            rows = asyncio.run(measure(f"redis://127.0.0.1:{stage.redis[0]}/0", parsed.records))
    except (MissingError, NotStartedError, StoreError, RedisError) as exc:
        sys.stderr.write(f"bench: {exc}\n")
        return 1
    print(columns([_HEAD, *map(_line, rows)], left=1))
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"finished": finished, "machine": described(cores), "rows": [asdict(row) for row in rows]}
    parsed.output.parent.mkdir(parents=True, exist_ok=True)
    parsed.output.write_text(json.dumps(document, indent=2) + "\n")
    print(f"\nwritten: {parsed.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
