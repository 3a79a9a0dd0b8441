"""What slow senders cost everybody else: `make slow`, or `python -m bench.slow_senders`.

One proxy process gets 100 requests a second over 8 connections that are kept: small writes with a key of their own each, replays,
and reads. In every other round 500 more connections each have a request on the way that goes on by one byte a second: a head, a
body with its length, or one in chunks, with a key and without. A request that cannot be sent in time because the one before it is
late is sent late; its time counts from when it was due. At the end 500 slow ones are left alone until the proxy has ended them.

    round     what it was
    requests  of the normal traffic; all were answered rightly
    p50, p99  and longest time to the answer, ms
    CPU %     of one core, used by the proxy

`ratio` is the median of the p99 of the rounds with slow senders by that of those without.

    ended     how many slow ones have been, of each kind, with which status, and after how many seconds the first and the last was
    claims    that were asked of the store for them
    left      file descriptors that the proxy has more than before them
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from asyncio import IncompleteReadError
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench.loop import loop_factory
from bench.machine import Cores, cpu_seconds
from bench.soak.client import Address, Wire, WrongAnswerError, head_bytes, new_key, read, write
from bench.soak.samples import Watched, metric
from bench.stage import MissingError, NotStartedError, Stage, answers_ok, free_port, listens

SLOW: Final = 500
_NORMAL: Final = 8
_HERTZ: Final = 100
_JSON: Final = "Content-Type: application/json"
_CHUNK: Final = b"1\r\nx\r\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """A slow request: what is sent at once, and what again and again, a byte at a time."""

    name: str
    begin: bytes
    drip: bytes


def kinds() -> list[Kind]:
    """Every kind of slow request once; a new key each time."""
    sized, chunked = "Content-Length: 100000", "Transfer-Encoding: chunked"
    return [
        Kind("head", b"POST /api/slow HTTP/1.1\r\nHost: api.test\r\nX-Slow: ", b"x"),
        Kind("keyed, sized", head_bytes("POST", "/api/slow", _JSON, sized, key=new_key()), b"x"),
        Kind("keyed, chunked", head_bytes("POST", "/api/slow", _JSON, chunked, key=new_key()), _CHUNK),
        Kind("sized", head_bytes("PUT", "/api/slow", sized), b"x"),
        Kind("chunked", head_bytes("PUT", "/api/slow", chunked), _CHUNK),
    ]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a slow sender was ended; the status is 0 without an answer."""

    kind: str
    seconds: float
    status: int


async def _drip(address: Address, kind: Kind) -> Ended:
    """Send slowly until the proxy ends it."""
    began = time.monotonic()
    wire = await Wire.open(address)
    answer = asyncio.create_task(wire.answer())
    try:
        await wire.send(kind.begin)
        sent = count()
        while not (await asyncio.wait({answer}, timeout=1.0))[0]:
            at = next(sent) % len(kind.drip)
            wire.writer.write(kind.drip[at : at + 1])
        with suppress(IncompleteReadError, ConnectionError):
            return Ended(kind.name, time.monotonic() - began, (await answer).status)
        return Ended(kind.name, time.monotonic() - began, 0)
    finally:
        answer.cancel()
        await wire.leave("close")


@asynccontextmanager
async def slow_senders(watched: Watched, address: Address, number: int = SLOW) -> AsyncIterator[list[asyncio.Task[Ended]]]:
    """So many slow requests, of every kind equally many, which have all begun and go on; what is left goes with the context."""
    each = islice((kind for _ in count() for kind in kinds()), number)
    dripping = [asyncio.create_task(_drip(address, kind)) for kind in each]
    try:
        async with asyncio.timeout(20):
            while watched.descriptors()["clients"] < number:  # noqa: ASYNC110 - in another process, of which no event tells
                await asyncio.sleep(0.05)
        yield dripping
    finally:
        for task in dripping:
            task.cancel()
        await asyncio.gather(*dripping, return_exceptions=True)


async def normal_traffic(address: Address, seconds: float, hertz: float = _HERTZ) -> list[float]:
    """Ask at a steady rate; seconds from when each request was due until its answer. Raises WrongAnswerError."""
    lanes = (_lane(address, number, seconds, hertz) for number in range(_NORMAL))
    return [took for lane in await asyncio.gather(*lanes) for took in lane]


async def _lane(address: Address, number: int, seconds: float, hertz: float) -> list[float]:
    replayed = write(new_key())
    took = []
    wire = await Wire.open(address)
    (await wire.ask(replayed)).must_be(200, told="executed")
    begin = time.perf_counter() + number / hertz
    for nth in range(int(seconds * hertz / _NORMAL)):
        due = begin + nth * _NORMAL / hertz
        request, told = ((write(new_key()), "executed"), (replayed, "replayed"), (read(), ""))[nth % 3]
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        (await wire.ask(request)).must_be(200, told=told)
        took.append(time.perf_counter() - due)
    await wire.leave("close")
    return took


def start(stage: Stage, head_seconds: float = 30.0, idle_seconds: float = 30.0) -> Watched:
    """An upstream, and a proxy in front of it that waits for clients for so long."""
    port, admin, upstream = free_port(), free_port(), free_port()
    words = ("bench.soak.upstream", str(upstream))
    stage.start_python("upstream", *words, cores=stage.cores.support, is_ready=lambda: listens(upstream))
    timeouts = {"connect": "5s", "first_byte": f"{idle_seconds}s", "idle": f"{idle_seconds}s", "total": "120s"}
    settings = {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "store": {"url": f"sqlite:///{stage.directory / 'records.db'}"},
        "spool": {"directory": str(stage.directory / "spool")},
        "upstreams": {"api": {"url": f"http://127.0.0.1:{upstream}", "timeouts": timeouts}},
    }
    configuration, told = stage.directory / "idemproxy.yaml", stage.directory / "told"
    configuration.write_text(json.dumps(settings))  # which YAML takes as it is
    pid = stage.start_python(
        "idemproxy", "bench.soak.proxy", str(told), str(head_seconds), "run", "--config", str(configuration),
        cores=stage.cores.server, is_ready=lambda: answers_ok(f"http://127.0.0.1:{admin}/readyz"),
    )  # fmt: skip
    return Watched(pid, port, admin, frozenset({upstream}), told)


def claims(watched: Watched) -> float:
    """How many claims the proxy has asked its store for."""
    return metric(watched.admin, 'idemproxy_store_operations_total{operation="claim"')


async def until_idle(watched: Watched, before: int, seconds: float = 20.0) -> int:
    """Wait until the proxy has as few file descriptors as before; how many more it has after so many seconds."""
    deadline = time.monotonic() + seconds
    while (more := watched.descriptors().total() - before) > 0 and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.1)
    return max(0, more)


def allow_descriptors(number: int) -> None:
    """Let this process, and those that it starts, have so many. Raises MissingError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        if hard < number:
            raise MissingError(f"needs {number} file descriptors, and may have {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


@dataclass(frozen=True, slots=True)
class _Round:
    """The normal traffic of one round; milliseconds."""

    slow: int
    requests: int
    p50: float
    p99: float
    longest: float
    cpu: float

    def __str__(self) -> str:
        figures = f"{self.requests:9}{self.p50:8.1f}{self.p99:8.1f}{self.longest:8.1f}{self.cpu:8.1f}"
        return f"{f'{self.slow} slow' if self.slow else 'none slow':10}{figures}"


async def _round(watched: Watched, address: Address, slow: int, seconds: float) -> _Round:
    async with slow_senders(watched, address, slow):
        began, used = time.monotonic(), cpu_seconds(watched.pid)
        took = await normal_traffic(address, seconds)
        share = (cpu_seconds(watched.pid) - used) / (time.monotonic() - began)
    cuts = quantiles(took, n=100, method="inclusive")
    return _Round(slow, len(took), cuts[49] * 1e3, cuts[98] * 1e3, max(took) * 1e3, share * 100)


async def _measure(watched: Watched, rounds: int, seconds: float) -> bool:
    """Print the table; whether everything is as it ought to be."""
    address = Address(watched.port, None)
    await normal_traffic(address, 1.0)
    p99 = defaultdict[int, list[float]](list)
    print(f"{'round':10}{'requests':>9}{'p50':>8}{'p99':>8}{'max':>8}{'CPU %':>8}")
    for number in range(2 * rounds):
        done = await _round(watched, address, SLOW * (number % 2), seconds)
        p99[done.slow].append(done.p99)
        print(done, flush=True)
    ratio = median(p99[SLOW]) / median(p99[0])
    print(f"\nratio of the p99: {ratio:.2f}\n")
    return await _ending(watched, address) and ratio <= 2


async def _ending(watched: Watched, address: Address) -> bool:
    """Leave slow ones alone, and print how they end."""
    await asyncio.sleep(6.0)  # longer than connections to the upstream are kept
    descriptors, asked = watched.descriptors().total(), claims(watched)
    async with slow_senders(watched, address) as dripping:
        done, waiting = await asyncio.wait(dripping, timeout=90)
        ends = [task.result() for task in done]
    for (kind, status), number in sorted(Counter((end.kind, end.status) for end in ends).items()):
        seconds = [end.seconds for end in ends if (end.kind, end.status) == (kind, status)]
        print(f"ended: {number:4} {kind:15} {status or 'no answer'} {min(seconds):5.1f} s to {max(seconds):.1f} s")
    left, stored = await until_idle(watched, descriptors), claims(watched) - asked
    print(f"not ended: {len(waiting)}\nclaims: {stored:.0f}\nleft: {left}")
    return not (waiting or left or stored)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Exit codes: 0 the ratio is at most 2 and nothing is left, 1 something is not so, or failed, 2 wrong arguments.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.slow_senders", description="What slow senders cost everybody else.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="with, and as many without (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="N", help="for each round (default: %(default)s)")
    parsed = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("it reads /proc, so it needs Linux")
    if parsed.rounds < 1 or not 1 <= parsed.seconds <= 20:
        parser.error("--rounds must be at least 1, and --seconds between 1 and 20: the slow ones end after 30")
    try:
        allow_descriptors(4 * SLOW)
        with (
            tempfile.TemporaryDirectory(prefix="slow-") as directory,
            closing(Stage(Path(directory), Cores.of_this_machine())) as stage,
        ):
            watched = start(stage)
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return 0 if runner.run(_measure(watched, parsed.rounds, parsed.seconds)) else 1
    except (MissingError, NotStartedError, WrongAnswerError) as exc:
        sys.stderr.write(f"slow_senders: {exc}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
