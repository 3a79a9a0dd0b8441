"""How many operations a second the stores do, beside plain redis-py: `python -m bench.store_operations`, `make bench-store`.

No proxy and no HTTP: one process, one event loop, and so many tasks, each of which asks for its next operation when its last one
is done. It has a core to itself where there are two; the servers share another. Every reply is checked. Rounds are interleaved.

    work      first: a claim that is granted, and its completion with 500 bytes, two operations; replay: a claim that finds the
              answer; read: the same by `read`. One `first` counts once
    store     ours: as idemproxy runs it. redis-py pool: redis.asyncio.Redis with its connection pool and registered scripts.
              redis-py pipelines: what comes in one turn of the loop leaves as one pipeline. All three send the same Lua to the
              same server. 1 replica: a first write counts when a replica has it (WAIT), on a server that has one.
              Each flush of SQLite is one of the disk that the checkout is on
    per s     median of the rounds; range: the slowest and the fastest
    p50, p99  milliseconds for one, medians of the rounds
    CPU µs    processor time of this process for each, server's: of the servers behind it
    by pool   per second, by that of redis-py's pool doing the same; (by CPU): the ratio of processor times, the steadier one

bench/results/store.json holds all of it. Needs Linux, as bench does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from bench.loop import loop_factory
from bench.machine import Cores, cpu_seconds, on
from bench.measure import Effort, FailedError, Spread
from bench.report import columns, described
from bench.stage import MissingError, NotStartedError, Stage
from bench.store_contenders import BASE, CONTENDERS, Work
from bench.wire import ANSWER_BODY
from idemproxy.core.message import Answer
from idemproxy.core.record import MICROSECONDS, Identity, Record, pack_answer
from idemproxy.core.transition import Ask, Completion, Found, Granted, Settled
from idemproxy.store.base import Store, StoreError

_ROOT: Final = Path(__file__).parents[1]
_LATEST: Final = _ROOT / "bench" / "results" / "store.json"
_FULL: Final = Effort(rounds=5, connections=(1, 16, 64), warm_up=0.1, seconds=0.6)
_QUICK: Final = Effort(rounds=3, connections=(1, 16, 64), warm_up=0.03, seconds=0.12)

_LEASE: Final = 15 * MICROSECONDS
_ANSWER: Final = pack_answer(Answer(200, b"OK", ((b"Content-Type", b"application/json"),), ANSWER_BODY))
_COMPLETION: Final = Completion(200, 86_400 * MICROSECONDS, 7 * 86_400 * MICROSECONDS, answer=_ANSWER)
_FINGERPRINT: Final = f"v1:{secrets.token_urlsafe(32)}"
_HEAD: Final = (
    "store", "work", "at once", "per s", "range", "p50 ms", "p99 ms", "CPU µs", "server's", "by pool", "(by CPU)",
)  # fmt: skip


class Cell(NamedTuple):
    """One kind of work on one store, so many at once."""

    store: str
    work: Work
    at_once: int


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a cell in one round; latencies in milliseconds, processor times in microseconds for each one done."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    server_cpu_us: float


@dataclass(frozen=True, slots=True)
class Row:
    """The rounds of a cell, summed up: fields as in Round."""

    per_second: Spread
    p50_ms: Spread
    p99_ms: Spread
    cpu_us: Spread
    server_cpu_us: Spread

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Row:
        """Of at least one round."""
        told = [asdict(each) for each in rounds]
        return cls(**{name: Spread.of([each[name] for each in told]) for name in told[0]})


class Subject:
    """A started store, and how each work is done once; raises FailedError where the store does not do it."""

    def __init__(self, store: Store, pids: tuple[int, ...]) -> None:
        self.pids = pids
        self.works: dict[Work, Callable[[], Awaitable[None]]] = {"first": self._first, "replay": self._replay, "read": self._read}
        self._store = store
        self._known = _identity()

    async def prepare(self, at_once: int) -> None:
        """Have a record to replay, and as many connections as will be wanted."""
        await asyncio.gather(*(self._first() for _ in range(at_once)))
        await self._write(self._known)

    async def _first(self) -> None:
        await self._write(_identity())

    async def _write(self, identity: Identity) -> None:
        match await self._store.claim(identity, _ask()):
            case Granted(hold):
                settled = await self._store.complete(identity, hold, _COMPLETION)
            case other:
                raise FailedError(f"{self._store.name}: a new key was not granted: {other}")
        if settled is not Settled.WRITTEN:
            raise FailedError(f"{self._store.name}: a completion is {settled}")

    async def _replay(self) -> None:
        match await self._store.claim(self._known, _ask()):
            case Found(Record(answer=answer)) if answer == _ANSWER:
                pass
            case other:
                raise FailedError(f"{self._store.name}: a claim did not find the answer: {other}")

    async def _read(self) -> None:
        record = await self._store.read(self._known)
        if record is None or record.answer != _ANSWER:
            raise FailedError(f"{self._store.name}: a read did not find the answer: {record}")


def _identity() -> Identity:
    return Identity("shared", "payments", secrets.token_hex(32))


def _ask() -> Ask:
    return Ask(_FINGERPRINT, secrets.token_hex(16), "charges", _LEASE)


async def _spell(work: Callable[[], Awaitable[None]], at_once: int, seconds: float) -> list[float]:
    """Do it for so long, so many at once; how long each took, in seconds."""
    end = perf_counter() + seconds
    took: list[float] = []

    async def one() -> None:
        while (began := perf_counter()) < end:
            await work()
            took.append(perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(at_once)))
    return took


async def _round(subject: Subject, cell: Cell, effort: Effort) -> Round:
    work = subject.works[cell.work]
    await _spell(work, cell.at_once, effort.warm_up)
    began, used, served = perf_counter(), process_time(), sum(map(cpu_seconds, subject.pids))
    took = sorted(await _spell(work, cell.at_once, effort.seconds))
    passed, used = perf_counter() - began, process_time() - used
    served = sum(map(cpu_seconds, subject.pids)) - served
    done = len(took)
    return Round(done / passed, took[done // 2] * 1e3, took[done * 99 // 100] * 1e3, used / done * 1e6, served / done * 1e6)


async def measure(stage: Stage, wanted: Sequence[str], effort: Effort) -> dict[Cell, Row]:
    """All rounds, every other one in reverse. Raises FailedError, MissingError, NotStartedError, StoreError."""
    async with AsyncExitStack() as stack:
        subjects: dict[str, Subject] = {}
        cells: list[Cell] = []
        for contender in (each for each in CONTENDERS if each.name in wanted):
            store, pids = contender.make(stage)
            await store.start()
            stack.push_async_callback(store.close)
            subjects[contender.name] = subject = Subject(store, pids)
            await subject.prepare(max(effort.connections))
            cells += [Cell(contender.name, work, at_once) for work in contender.works for at_once in effort.connections]
        cells.sort(key=lambda cell: (("first", "replay", "read").index(cell.work), cell.at_once))
        found: dict[Cell, list[Round]] = {cell: [] for cell in cells}
        for number in range(effort.rounds):
            for cell in reversed(cells) if number % 2 else cells:
                found[cell].append(await _round(subjects[cell.store], cell, effort))
    return {cell: Row.of(rounds) for cell, rounds in found.items()}


def ratios(rows: Mapping[Cell, Row]) -> dict[Cell, tuple[float, float]]:
    """Each cell by that of what it is held against: by operations per second, and by processor time of this process."""
    pairs = {cell: rows.get(cell._replace(store=BASE.get(cell.store, ""))) for cell in rows}
    return {
        cell: (rows[cell].per_second.median / base.per_second.median, base.cpu_us.median / rows[cell].cpu_us.median)
        for cell, base in pairs.items()
        if base is not None
    }


def _table(rows: Mapping[Cell, Row]) -> str:
    against = ratios(rows)
    return columns([_HEAD, *(_line(cell, row, against.get(cell)) for cell, row in rows.items())], left=2)


def _line(cell: Cell, row: Row, ratio: tuple[float, float] | None) -> tuple[str, ...]:
    rate = row.per_second
    return (
        cell.store,
        cell.work,
        str(cell.at_once),
        f"{rate.median:,.0f}",
        f"{rate.low:,.0f} to {rate.high:,.0f}",
        f"{row.p50_ms.median:.2f}",
        f"{row.p99_ms.median:.2f}",
        f"{row.cpu_us.median:.0f}",
        f"{row.server_cpu_us.median:.0f}" if row.server_cpu_us.median else "",
        *(("", "") if ratio is None else (f"{ratio[0]:.2f}", f"({ratio[1]:.2f})")),
    )


def _document(effort: Effort, cores: Cores, rows: Mapping[Cell, Row]) -> dict[str, Any]:
    """The results as JSON values."""
    against = ratios(rows)
    name = "{0.store}/{0.work}@{0.at_once}".format
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": described(cores),
        "effort": {**asdict(effort), "answer_bytes": len(_ANSWER)},
        "ratios": {name(cell): round(rate, 3) for cell, (rate, _) in against.items()},
        "ratios_by_cpu": {name(cell): round(cpu, 3) for cell, (_, cpu) in against.items()},
        "series": [cell._asdict() | asdict(row) for cell, row in rows.items()],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the results. Exit codes: 0 measured, 1 something failed, 2 wrong arguments."""
    names = [contender.name for contender in CONTENDERS]
    parser = argparse.ArgumentParser(prog="python -m bench.store_operations", description="Store operations per second.")
    parser.add_argument("--quick", action="store_true", help="short rounds, under 40 s in all")
    parser.add_argument("--only", action="append", choices=names, metavar="STORE", help=f"repeatable: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often all is measured (default: 5, or 3)")
    parser.add_argument("--output", type=Path, default=_LATEST, metavar="FILE", help="default: bench/results/store.json")
    parsed = parser.parse_args(arguments)
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    usual = _QUICK if parsed.quick else _FULL
    effort = Effort(parsed.rounds or usual.rounds, usual.connections, usual.warm_up, usual.seconds)
    cores = Cores.of_this_machine()
    scratch = _ROOT / "build"  # not /tmp, which may be memory, where SQLite's flushes would cost nothing
    scratch.mkdir(exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-", dir=scratch) as directory,
            closing(Stage(Path(directory), cores)) as stage,
            on(cores.server),
            asyncio.Runner(loop_factory=loop_factory()) as runner,
        ):
            rows = runner.run(measure(stage, parsed.only or names, effort))
    except (FailedError, MissingError, NotStartedError, StoreError, RedisError) as exc:
        sys.stderr.write(f"bench: {exc}\n")
        return 1
    print(_table(rows))
    parsed.output.parent.mkdir(parents=True, exist_ok=True)
    parsed.output.write_text(json.dumps(_document(effort, cores, rows), indent=2) + "\n")
    print(f"\nwritten: {parsed.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
