"""Who reads bodies: the event loop itself where that is quick, and for large ones a process beside it.

The loop serves everybody, so nothing may hold it for long. A small body is read at once, which costs less than to hand it
over. Others wait in line for a process that takes one at a time; there is one line for what takes some tens of milliseconds, and
one for what may take seconds. A process is started when it is first needed and ended when it has had nothing to do for a while.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from idemproxy.core.message import field_values
from idemproxy.core.policy import KIB
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
"""From this size on a body waits in a line of its own: the dearest JSON below it takes 65 ms, of 10 MiB 4 s."""

IDLE: Final = 60.0
"""Seconds without a task after which a process is ended."""

_TRIES: Final = 2
"""How many processes are given a task. If they all die over it, or none can be had, it is done here, where it holds others up."""


class Digesting:
    """What is computed from whole bodies, without holding the event loop for long."""

    def __init__(self) -> None:
        self._large = _Line()
        self._huge = _Line()

    async def fingerprint(self, request: Request, route: Route) -> str:
        """What is asked, as a digest."""
        policy = route.policy
        return (await self._do(Digest(request, policy.fingerprint, policy.max_request_body))).decode("ascii")

    async def stamp(self, request: Request, rule: StampRule, key: str) -> Request:
        """The request with the key where the rule says. Raises StampError."""
        if rule.place == "header":
            return stamp(request, rule, key)
        return replace(request, body=await self._do(Stamping(request, rule, key)))

    async def _do(self, task: Task) -> bytes:
        line = self._line(task.request)
        return task.result() if line is None else await line.do(task)

    def _line(self, request: Request) -> _Line | None:
        """Where the request's body is read; None stands for here. What is encoded may be a thousand times as long."""
        if field_values(request.fields, b"content-encoding") or len(request.body) >= HUGE:
            return self._huge
        return self._large if len(request.body) >= LARGE else None

    async def close(self) -> None:
        """End the processes; what still waits for them is cancelled."""
        await asyncio.gather(self._large.close(), self._huge.close())


class _Line:
    """Tasks, one after another, in the order in which they came.

    A thread of its own waits for the process; what it is to do next is the line. A task whose caller is gone is never begun.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "reads-bodies")
        self._worker: Worker | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._is_well = True
        self._is_closed = False

    async def do(self, task: Task) -> bytes:
        """The task's result. Raises what the task raises."""
        loop = asyncio.get_running_loop()
        self._keep_worker()
        self._waiting += 1
        try:
            return await loop.run_in_executor(self._thread, self._result, task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._is_closed:
                self._keep_worker()
                self._idle = loop.call_later(IDLE, self._thread.submit, self._end_worker)

    async def close(self) -> None:
        """Drop what waits, and end the process."""
        self._is_closed = True
        self._keep_worker()
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
