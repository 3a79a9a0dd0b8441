"""Resident memory of idemproxy: idle, while bodies stream through, and with many requests in flight.

    embedded    idle on SQLite, the default: ready, after one write and one read
    idle        the same on Redis, whose client library is large; and on Redis from here on
    sent        the most while so many bodies of 100 MiB stream to the upstream at once, under no key
    answered    the same while they stream from it, half of them answers to first writes
    in flight   while so many first writes wait for their answers, each on a connection of its own

From the second on it is one proxy, asked in this order, what takes least first, since an allocator does not give back all that it
had. Clients and upstream are in this process, on the load's core. It is slower than the proxy, and so what it does not take would
pile up there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from bench.load import WrongAnswerError
from bench.loop import loop_factory
from bench.machine import allow_files, family, forget_peak, on, peak_mib, resident_mib
from bench.ours import on_redis, on_sqlite
from bench.stage import MissingError, Stage, Standing
from bench.targets import Target
from bench.wire import ANSWER, READ, write

_MIB: Final = 2**20
_PIECE: Final = bytes(256 * 1024)
_PATIENCE: Final = 60.0
"""Seconds for all of it."""
_HEAD_END: Final = b"\r\n\r\n"

TARGETS: Final = {
    "embedded": Target(60, 45, less_is_better=True),
    "idle": Target(60, 45, less_is_better=True),
    "sent": Target(150, 80, less_is_better=True),
    "answered": Target(150, 80, less_is_better=True),
    "in_flight": Target(150, 100, less_is_better=True),
}
"""By what is measured, MiB."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many requests are in flight at once, how many bodies stream at once, and how long each of them is."""

    requests: int = 1_000
    bodies: int = 10
    body_mib: int = 100

    def told(self) -> dict[str, str]:
        """What is measured, for people."""
        bodies = f"{self.bodies} x {self.body_mib} MiB"
        in_flight = f"{self.requests:,} in flight"
        return {
            "embedded": "idle on SQLite",
            "idle": "idle on Redis",
            "sent": f"{bodies} sent",
            "answered": f"{bodies} answered",
            "in_flight": in_flight,
        }


def measure(stage: Stage, amounts: Amounts) -> dict[str, float]:
    """MiB by the names of TARGETS. Raises WrongAnswerError, MissingError and NotStartedError."""
    if not allow_files(4 * amounts.requests):
        raise MissingError(f"a process may not have {4 * amounts.requests} files open here")
    with on(stage.cores.load), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_unless_silent(stage, amounts))


async def _unless_silent(stage: Stage, amounts: Amounts) -> dict[str, float]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _measure(stage, amounts)
    except (TimeoutError, OSError, asyncio.IncompleteReadError) as exc:
        raise WrongAnswerError(f"memory: not all was answered within {_PATIENCE:g} s: {exc!r}") from exc


async def _measure(stage: Stage, amounts: Amounts) -> dict[str, float]:
    upstream = _Upstream(amounts)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=4096)
    upstream_port = server.sockets[0].getsockname()[1]
    found = {"embedded": await _idle(embedded := on_sqlite(stage, "memory-sqlite", upstream_port))}
    await asyncio.to_thread(stage.end, embedded.pid)
    standing = on_redis(stage, "memory", upstream_port)
    port, pid = standing.port, standing.pid
    found["idle"] = await _idle(standing)
    found["sent"] = await _most(pid, (_send(port, amounts.body_mib) for _ in range(amounts.bodies)))
    asked = (_request(b"/long", is_write=number % 2 == 0) for number in range(amounts.bodies))
    found["answered"] = await _most(pid, (_ask(port, each, amounts.body_mib * _MIB) for each in asked))
    held = [asyncio.create_task(_ask(port, _request(b"/held", is_write=True), len(ANSWER))) for _ in range(amounts.requests)]
    here = asyncio.create_task(upstream.all_held.wait())
    done, _ = await asyncio.wait((here, *held), return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*done)  # a request that has ended has failed
    found["in_flight"] = _resident(pid)
    upstream.released.set()
    await asyncio.gather(*held)
    server.close()
    await asyncio.to_thread(stage.end, pid)
    return {name: round(mib, 1) for name, mib in found.items()}


async def _idle(standing: Standing) -> float:
    await asyncio.gather(*(_ask(standing.port, _request(b"/", is_write=each), len(ANSWER)) for each in (True, False)))
    return _resident(standing.pid)


def _resident(pid: int) -> float:
    return sum(map(resident_mib, family(pid)))


async def _most(pid: int, work: Iterable[Awaitable[None]]) -> float:
    """The most that is resident while the work is done."""
    forget_peak(pid)
    await asyncio.gather(*work)
    return sum(map(peak_mib, family(pid)))


class _Upstream:
    """Answers what it has read to its end: /held when as many as there shall be are here, /long at length, all else at once."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = amounts
        self._held = 0
        self.all_held = asyncio.Event()
        self.released = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(_HEAD_END)
                await _drop(reader, _length(head))
                await self._answer(head.split(b" ", 2)[1], writer)

    async def _answer(self, path: bytes, writer: asyncio.StreamWriter) -> None:
        match path:
            case b"/held":
                self._held += 1
                if self._held == self._amounts.requests:
                    self.all_held.set()
                await self.released.wait()
                writer.write(ANSWER)
            case b"/long":
                await _pour(writer, b"HTTP/1.1 200 OK", self._amounts.body_mib)
            case _:
                writer.write(ANSWER)
        await writer.drain()


async def _send(port: int, mib: int) -> None:
    """Put so much on a resource."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        await _pour(writer, b"PUT /files/a HTTP/1.1\r\nHost: api.example", mib)
        await _take(reader, len(ANSWER))


async def _ask(port: int, request: bytes, at_least: int) -> None:
    """Send a short request, and read an answer that is not shorter than that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(request)
        await _take(reader, at_least)


async def _take(reader: asyncio.StreamReader, at_least: int) -> None:
    head = await reader.readuntil(_HEAD_END)
    length = _length(head)
    if not head.startswith(b"HTTP/1.1 200 ") or len(head) + length < at_least:
        body = await reader.readexactly(min(length, 2_000))
        raise WrongAnswerError((head + body).decode("utf-8", "replace"))
    await _drop(reader, length)


async def _pour(writer: asyncio.StreamWriter, begins: bytes, mib: int) -> None:
    """A message with a body of so many MiB."""
    writer.write(b"%b\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % (begins, mib * _MIB))
    for _ in range(mib * _MIB // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()


async def _drop(reader: asyncio.StreamReader, length: int) -> None:
    while length:
        piece = await reader.read(min(length, len(_PIECE)))
        if not piece:
            raise WrongAnswerError("a body ended too early")
        length -= len(piece)


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)


def _request(path: bytes, *, is_write: bool) -> bytes:
    """One of those of all series, with another path."""
    line, space, rest = (write(uuid4().hex.encode()) if is_write else READ).partition(b" HTTP/1.1")
    return line.partition(b" ")[0] + b" " + path + space + rest
