"""Who reads bodies: the event loop itself where that is quick, and for large ones a process beside it.

The loop serves everybody, so nothing may hold it for long. A small body is read at once, which costs less than to hand it
over. Others wait in line for a process that takes one at a time, and there is a line for each of three sizes: what takes some
tens of milliseconds does not wait for what may take seconds. A process is started when it is first needed and ended when it has
had nothing to do for a while. The size that counts is that of the content, so what is packed is unpacked first, and measured.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from idemproxy.core.coding import names, undo
from idemproxy.core.fingerprint import FingerprintRule
from idemproxy.core.message import field_values
from idemproxy.core.policy import KIB, MIB
from idemproxy.core.stamp import stamp
from idemproxy.proxy.worker import Digest, Stamping, Task, Worker, WorkerDiedError

if TYPE_CHECKING:
    from idemproxy.core.message import Request
    from idemproxy.core.policy import Route
    from idemproxy.core.stamp import StampRule

_log = logging.getLogger("idemproxy")

LARGE: Final = 16 * KIB
"""From this size on a body is not read in the event loop: the dearest JSON of that size takes 4 ms, the usual half of one."""

HUGE: Final = 256 * KIB
"""From this size on a body waits in a line of its own: the dearest JSON below it takes 65 ms."""

VAST: Final = 2 * MIB
"""And so from this size on: the dearest JSON below it takes 0.5 s, of 10 MiB 3 to 4 s."""

GIVES_WAY: Final = MIB
"""Bytes per second: a body of so many MiB lets smaller ones pass that come at most so many seconds after it."""

IDLE: Final = 60.0
"""Seconds without a task after which a process is ended."""

_TRIES: Final = 2
"""How many processes are given a task. If they all die over it, or none can be had, it is done here, where it holds others up."""


def is_read_at_once(request: Request) -> bool:
    """Whether its body is small, and not packed: then whoever needs what it says may as well read it."""
    return len(request.body) < LARGE and not field_values(request.fields, b"content-encoding")


class Digesting:
    """What is computed from whole bodies, without holding the event loop for long."""

    def __init__(self) -> None:
        self._lines = {least: _Line() for least in (VAST, HUGE, LARGE)}
        self._unpacks = ThreadPoolExecutor(1, "unpacks-bodies")
        """One, so that only one content is in memory, and only to be measured. It holds no lock: zlib needs none."""

    async def fingerprint(self, request: Request, route: Route) -> str:
        """What is asked, as a digest."""
        rule, limit = route.policy.fingerprint, route.policy.max_request_body
        size: int | None = len(request.body)
        codings = names(field_values(request.fields, b"content-encoding"))
        if codings and rule.mode != "raw":
            size = await self._unpacked(request.body, codings, limit)
        if size is None:  # its bytes will be compared: that need not be found out a second time
            rule, size = FingerprintRule(mode="raw", headers=rule.headers), len(request.body)
        return (await self._do(Digest(request, rule, limit), size)).decode("ascii")

    async def stamp(self, request: Request, rule: StampRule, key: str) -> Request:
        """The request with the key where the rule says. Raises StampError."""
        if rule.place == "header":
            return stamp(request, rule, key)
        return replace(request, body=await self._do(Stamping(request, rule, key), len(request.body)))

    async def _unpacked(self, body: bytes, codings: list[bytes], limit: int) -> int | None:
        """How long the content of an encoded body is; None where it cannot be had. A small one is unpacked here."""
        if len(body) < LARGE and (content := undo(body, codings, max_decoded=min(LARGE, limit))) is not None:
            return len(content)
        return await asyncio.get_running_loop().run_in_executor(self._unpacks, _size, body, codings, limit)

    async def _do(self, task: Task, size: int) -> bytes:
        line = next((line for least, line in self._lines.items() if size >= least), None)
        return task.result() if line is None else await line.do(task, size)

    async def close(self) -> None:
        """End the processes; what still waits for them is cancelled."""
        self._unpacks.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(line.close() for line in self._lines.values()))


def _size(body: bytes, codings: list[bytes], limit: int) -> int | None:
    content = undo(body, codings, max_decoded=limit)
    return None if content is None else len(content)


class _Line:
    """Tasks, one after another: the smaller first, but none waits for all that are smaller (see `GIVES_WAY`).

    A thread of its own waits for the process. A task whose caller is gone is never begun.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "reads-bodies")
        self._worker: Worker | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._turns: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._is_busy = False
        self._is_well = True
        self._is_closed = False

    async def do(self, task: Task, size: int) -> bytes:
        """The task's result. Raises what the task raises."""
        if self._is_busy:
            await self._turn(size)
        self._is_busy = True
        self._keep_worker()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._result, task)
        finally:
            self._call_next()

    async def _turn(self, size: int) -> None:
        """Wait for it, with nothing held but the caller's place. What is called stays busy until it calls the next."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heappush(self._turns, (loop.time() + size / GIVES_WAY, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was called, and left in the same moment
                self._call_next()
            raise

    def _call_next(self) -> None:
        while self._turns:
            *_, turn = heappop(self._turns)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
        if not self._is_closed:
            self._idle = asyncio.get_running_loop().call_later(IDLE, self._thread.submit, self._end_worker)

    async def close(self) -> None:
        """Drop what waits, and end the process."""
        self._is_closed = True
        self._keep_worker()
        for *_, turn in self._turns:
            turn.cancel()
        if self._worker is not None:
            self._worker.kill()
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
        await asyncio.to_thread(self._end_worker)

    def _keep_worker(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _result(self, task: Task) -> bytes:
        """The task's result, whatever becomes of the process: nothing is claimed or sent before, so the body is read again."""
        for _ in range(_TRIES):
            try:
                if self._worker is None:
                    self._worker = Worker()
                result = self._worker.do(task)
            except OSError as exc:
                self._tell(f"cannot be started: {exc}")
                break
            except WorkerDiedError as exc:
                self._end_worker()
                if self._is_closed:
                    raise
                self._tell(f"has died: {exc}")
            else:
                self._is_well = True
                return result
        return task.result()

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _tell(self, what: str) -> None:
        if self._is_well:
            self._is_well = False
            _log.warning("the process that reads large bodies %s", what)
